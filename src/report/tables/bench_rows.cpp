// The row of `rooflm bench` for a run of a record.
#include "report/tables/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/correlation.h"
#include "core/ratio.h"
#include "core/statistics.h"
#include "core/units.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/runs/sweep.h"
#include "report/tables/run_columns.h"
#include "report/tables/typed_columns.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr double kMs = 1e3;

/// What is timed of a step, in the order of the columns.
constexpr std::array<std::string_view, 5> kTimed = {"forward", "backward", "optimizer", kStep, kSubmit};
constexpr std::size_t kStepAt = 3;

struct BenchRow {
  const RunData* run = nullptr;
  RunFigures figures{};
  std::array<std::optional<core::Summary>, kTimed.size()> times{};
  const BenchRow* eager = nullptr;  ///< of a fused row: the same configuration on the eager engine

  /// nullptr where no step was timed.
  [[nodiscard]] const core::Summary* step() const { return times[kStepAt] ? &*times[kStepAt] : nullptr; }
  [[nodiscard]] double step_median_ms() const { return step() == nullptr ? 0 : step()->median * kMs; }
  [[nodiscard]] std::int64_t setting(std::string_view key) const {
    return run->run.config.integer(key).value_or(0);
  }
  [[nodiscard]] std::optional<double> steps() const {
    if (step() != nullptr) return static_cast<double>(step()->count);
    const auto most = run->number("max_steps");  // records of earlier versions call it steps
    return most ? most : run->number("steps");
  }
  [[nodiscard]] std::optional<double> speedup() const {
    return eager == nullptr ? std::nullopt : std::optional(eager->step_median_ms() / step_median_ms());
  }
  /// "tiny B=4 T=256 fp32".
  [[nodiscard]] std::string label() const {
    return fmt::format("{} B={} T={} {}", run->setting("model"), setting("batch"), setting("seq"),
                       run->setting("dtype"));
  }
};

/// Whether two rows that differ in the field say nothing about their engines.
bool must_agree(const record::Field& field) {
  if (field.key == "engine" || field.key == "attention") return false;
  return field.decides || field.key == "seed" || field.key == "threads";
}

bool is_same_but_for_engine(const RunData& a, const RunData& b) {
  const auto agree = [&](const record::Field& field) {
    const record::Config::Value* of_a = a.run.config.find(field.key);
    const record::Config::Value* of_b = b.run.config.find(field.key);
    return of_a == nullptr || of_b == nullptr ? of_a == of_b : *of_a == *of_b;
  };
  return a.run.status == b.run.status && std::ranges::all_of(record::config_fields(), [&](const auto& field) {
           return !must_agree(field) || agree(field);
         });
}

const BenchRow* find_eager(const std::vector<BenchRow>& rows, const BenchRow& fused) {
  if (fused.run->setting("engine") != "fused" || fused.step_median_ms() <= 0) return nullptr;
  const BenchRow* best = nullptr;
  for (const BenchRow& row : rows) {
    if (row.run->setting("engine") != "eager" || !is_same_but_for_engine(*row.run, *fused.run)) continue;
    const std::string attention = row.run->setting("attention");
    if (attention == fused.run->setting("attention")) return &row;
    if (best == nullptr || attention == "batched") best = &row;
  }
  return best;
}

BenchRow measured_row(const RunData& run) {
  BenchRow row{.run = &run, .figures = figures_of(run)};
  for (std::size_t i = 0; i < kTimed.size(); ++i) row.times.at(i) = phase_time(run, kTimed.at(i));
  return row;
}

std::vector<BenchRow> rows_of(const RecordSet& set) {
  std::vector<BenchRow> rows;
  for (const RunData& run : set.runs) rows.push_back(measured_row(run));
  for (BenchRow& row : rows) row.eager = find_eager(rows, row);
  return rows;
}

/// Decimals of all times, in ms, with which the shortest mean has two digits if three decimals allow it.
Show show_of_times(const std::vector<BenchRow>& rows) {
  double least_ms = HUGE_VAL;
  for (const BenchRow& row : rows) {
    for (std::size_t i = 0; i <= kStepAt; ++i) {
      const auto& time = row.times.at(i);
      if (time && time->mean > 0) least_ms = std::min(least_ms, time->mean * kMs);
    }
  }
  if (least_ms >= 1) return Show::fixed1;
  return least_ms >= 0.1 ? Show::fixed2 : Show::fixed3;
}

/// Settings that every table shows, each with its title; `usual`: unless all rows have this value.
struct ShownSetting {
  std::string_view key, title;
  std::string_view usual{};
};
constexpr auto kSettings = std::to_array<ShownSetting>({{"model", "size"},
                                                        {"arch", "kind"},
                                                        {"d_model", "d_model"},
                                                        {"d_ff", "d_ff"},
                                                        {"layers", "num_layers"},
                                                        {"heads", "num_heads"},
                                                        {"batch", "batch"},
                                                        {"seq", "seq"},
                                                        {"recompute", "recompute", "none"},
                                                        {"grad_accum", "grad_accum", "1"},
                                                        {"dtype", "dtype"},
                                                        {"engine", "engine"},
                                                        {"attention", "attention"}});
/// What follows them, and whatever else the rows were told to differ in: people read shares and times in an
/// order of their own.
constexpr auto kMeasured = std::to_array<std::string_view>(
    {"status", "forward_ms_mean", "forward_ms_std", "backward_ms_mean", "backward_ms_std",
     "backward_over_forward", "optimizer_ms_mean", "optimizer_ms_std", "step_ms_mean", "tokens_per_s",
     "share_of_peak", "mfu", "needed_bytes", "free_bytes", "speedup_over_eager"});

std::size_t place_of(const Column& column) {
  const auto setting = std::ranges::find(kSettings, column.key, &ShownSetting::key);
  if (setting != kSettings.end()) return static_cast<std::size_t>(setting - kSettings.begin());
  const auto measured = std::ranges::find(kMeasured, column.key);
  if (measured == kMeasured.end()) return kSettings.size();
  return kSettings.size() + 1 + static_cast<std::size_t>(measured - kMeasured.begin());
}

Cell value_of(const RunData& run, std::string_view key) {
  const record::Config::Value* value = run.run.config.find(key);
  return value == nullptr ? Cell() : std::visit([](const auto& typed) { return Cell(typed); }, *value);
}

Seen seen_if(bool is_seen) { return is_seen ? Seen::always : Seen::never; }

bool has_peaks(const std::vector<BenchRow>& rows) {
  return std::ranges::any_of(rows, [](const BenchRow& row) { return row.figures.matmul_share.has_value(); });
}

void add_settings(TypedColumns<BenchRow>& columns, const std::vector<BenchRow>& rows) {
  std::vector<const record::Run*> runs;
  for (const BenchRow& row : rows) runs.push_back(&row.run->run);
  const std::vector<std::string> differing = telling(runs);
  for (const record::Field& field : record::config_fields()) {
    if (field.key == "steps") continue;
    const auto shown = std::ranges::find(kSettings, field.key, &ShownSetting::key);
    const bool is_known = shown != kSettings.end();
    const bool is_told = std::ranges::find(differing, field.key) != differing.end();
    const bool is_usual =
        is_known && !shown->usual.empty() && std::ranges::all_of(rows, [&](const BenchRow& row) {
          return format_cell(value_of(*row.run, field.key), Show::plain) == shown->usual;
        });
    columns.add({std::string(field.key).c_str(), std::string(is_known ? shown->title : field.title).c_str(),
                 [key = field.key](const BenchRow& row) { return value_of(*row.run, key); },
                 seen_if(is_told || (is_known && !is_usual))});
  }
}

void add_times(TypedColumns<BenchRow>& columns, Show shown) {
  for (std::size_t i = 0; i < kTimed.size(); ++i) {
    const auto add = [&](const char* end, double core::Summary::*member, bool is_seen) {
      const auto of_row = [i, member](const BenchRow& row) {
        const auto& time = row.times.at(i);
        return time ? std::optional((*time).*member * kMs) : std::nullopt;
      };
      const std::string name(kTimed.at(i));
      columns.add({(name + "_ms_" + end).c_str(), (i == kStepAt ? "total" : name + "_" + end).c_str(), of_row,
                   seen_if(is_seen), shown});
    };
    add("mean", &core::Summary::mean, i <= kStepAt);
    add("std", &core::Summary::std, i < kStepAt);
    add("median", &core::Summary::median, false);
  }
}

const TypedColumns<core::Summary>& step_columns() {
  static const TypedColumns<core::Summary> columns = {
      {"step_ms_ci_low", [](const core::Summary& time) { return time.median_ci.low * kMs; }},
      {"step_ms_ci_high", [](const core::Summary& time) { return time.median_ci.high * kMs; }},
      {"step_ms_min", [](const core::Summary& time) { return time.min * kMs; }},
      {"step_ms_mad", [](const core::Summary& time) { return time.mad * kMs; }},
      {"outliers", &core::Summary::outliers},
      {"drift_ratio", [](const core::Summary& time) { return time.drift.ratio; }},
      {"drift_p", [](const core::Summary& time) { return time.drift.p; }}};
  return columns;
}

/// About 2 where matmuls bind both: backward has two for each of forward.
std::optional<double> backward_over_forward(const RunData& run) {
  return core::ratio_of(phase_median(run, kPhases[1]), phase_median(run, kPhases[0]));
}

std::optional<double> exposed_ms(const RunData& run) {
  const auto exposed_s = run.number("exposed_s");
  return exposed_s ? std::optional(*exposed_s * kMs) : std::nullopt;
}

Cell free_bytes(const RunData& run) {
  return run.run.status == "oom" ? whole(run.number("free_bytes")) : Cell();
}

Cell rss_increase(const RunData& run) {
  return is_on_gpu(run) ? Cell() : whole(run.number("rss_increase_bytes"));
}

/// In the order of CSV and JSON. Without rows: all that any table may have.
TypedColumns<BenchRow> bench_columns(const std::vector<BenchRow>& rows) {
  const auto any = [&](auto holds) {
    return std::ranges::any_of(rows, [&](const BenchRow& row) { return holds(*row.run); });
  };
  const bool has_peak = has_peaks(rows) || any([](const RunData& run) { return !why_no_peak(run).empty(); });
  TypedColumns<BenchRow> columns = {};
  add_settings(columns, rows);
  columns.add({"steps", [](const BenchRow& row) { return whole(row.steps()); }});
  columns.add({{"status", "status", of_run::status}}, &BenchRow::run);
  add_times(columns, show_of_times(rows));
  columns.add({{"backward_over_forward", "bwd/fwd", backward_over_forward, Show::fixed2}}, &BenchRow::run);
  columns.add(step_columns(), &BenchRow::step);
  columns.add({{"exposed_ms", "exposed", exposed_ms, Seen::never, Show::fixed2},
               {"drift", of_run::text("drift")},
               {"others_share", of_run::number("others_share")},
               {"stop_reason", of_run::text("stop_reason")}},
              &BenchRow::run);
  columns.add({{"tokens_per_s", "tokens/s", &RunFigures::tokens_per_s, Show::fixed1},
               {"mfu", "MFU", &RunFigures::mfu, seen_if(has_peak), Show::percent},
               {"share_of_peak", "of_peak", &RunFigures::matmul_share, seen_if(has_peak), Show::percent},
               {"peak_flop_per_s", &RunFigures::peak_flop_per_s},
               {"datasheet_flop_per_s", &RunFigures::datasheet_flop_per_s},
               {"datasheet_mfu", &RunFigures::datasheet_mfu}},
              &BenchRow::figures);
  columns.add({{"peak_bytes", of_run::count("peak_bytes")},
               {"rss_increase_bytes", rss_increase},
               {"loss", of_run::number("loss")},
               {"free_bytes", "free", free_bytes, Seen::when_known, Show::bytes},
               {"model_flops", of_run::count("model_flop")},
               {"matmul_flops", of_run::count("matmul_flop")},
               {"plan_bytes", of_run::count("plan_bytes")},
               {"state_bytes", of_run::count("state_bytes")},
               {"needed_bytes", "memory", of_run::count("needed_bytes"), Show::bytes}},
              &BenchRow::run);
  for (const char* key : {"attention_forward", "attention_backward"}) {
    if (rows.empty() || any([&](const RunData& run) { return !run.text(key).empty(); }))
      columns.add({{key, of_run::text(key)}}, &BenchRow::run);
  }
  return columns.add({"speedup_over_eager", "speed-up", &BenchRow::speedup, Seen::when_known, Show::fixed2});
}

std::string speedup_line(const BenchRow& fused, Show times) {
  return fmt::format("{}: fused ({}) is {:.2f} times as fast as eager ({}): {} ms and {} ms per step",
                     fused.label(), fused.run->setting("attention"), *fused.speedup(),
                     fused.eager->run->setting("attention"), format_cell(fused.step_median_ms(), times),
                     format_cell(fused.eager->step_median_ms(), times));
}

/// What the reader of a row should know of how its times came about.
void add_warnings(Table& table, const BenchRow& row) {
  const RunData& run = *row.run;
  const std::string reason = run.text("stop_reason");
  if (reason.empty()) return;
  const std::string label = row.label() + " " + run.setting("engine");
  const double steps = row.steps().value_or(0);
  if (reason != fmt::format("{:.0f} samples", steps))
    table.notes.push_back(fmt::format("{}: {:.0f} steps, stopped at: {}", label, steps, reason));
  if (row.step() != nullptr && row.step()->drift.p < core::Drift::kAlpha)
    table.notes.push_back(fmt::format("{}: {}", label, run.text("drift")));
  const core::Neighbours neighbours = core::measure_neighbours(run.seconds(kStep));
  if (neighbours.is_significant) {
    table.notes.push_back(
        fmt::format("{}: neighbouring steps resemble each other (correlation of ranks {:.2f}): the "
                    "interval of the median assumes independent steps and is about {:.1f} times too narrow",
                    label, neighbours.correlation, neighbours.narrowness()));
  }
  for (const char* key : {"others_share", "device_ranks", "fp8_matmuls"}) {
    if (const std::string text = run.text(key); !text.empty())
      table.notes.push_back(fmt::format("{}: {}", label, text));
  }
  if (row.step() != nullptr && row.step()->outliers > 0) {
    table.notes.push_back(fmt::format(
        "{}: {} of {} steps are outliers (further than 5 standard deviations, by MAD, from the median)",
        label, row.step()->outliers, steps));
  }
}

/// "6 steps", "1 thread", "6 to 57 steps": a count of the rows that were timed.
template <class Count>
std::string counts_text(const std::vector<BenchRow>& rows, Count count, const char* what) {
  double least = HUGE_VAL;
  double most = 0;
  for (const BenchRow& row : rows) {
    if (row.step() == nullptr || row.step()->mean <= 0) continue;
    least = std::min(least, count(row));
    most = std::max(most, count(row));
  }
  if (least < most) return fmt::format("{:.0f} to {:.0f} {}s", least, most, what);
  return core::format_count(static_cast<std::int64_t>(most), what);
}

void add_notes(Table& table, const std::vector<BenchRow>& rows) {
  const auto is_seen = [&](std::string_view key) {
    return std::ranges::find(table.columns, key, &Column::key) != table.columns.end();
  };
  const auto setting = [](const char* key) {
    return [key](const BenchRow& row) { return static_cast<double>(row.setting(key)); };
  };
  table.notes.emplace_back();
  if (std::ranges::any_of(rows, [](const BenchRow& row) { return row.step() != nullptr; })) {
    table.notes.push_back(fmt::format(
        "Times: wall time in ms, mean and standard deviation of {} after {}, {}, no observer; total is the "
        "whole step. bwd/fwd and tokens/s are of medians.",
        counts_text(
            rows, [](const BenchRow& row) { return row.steps().value_or(0); }, "step"),
        counts_text(rows, setting("warmup"), "warm-up step"),
        counts_text(rows, setting("threads"), "thread")));
  }
  for (const BenchRow& row : rows) add_warnings(table, row);
  table.notes.emplace_back("memory: weights, optimizer state, inputs and tensors of the step, as planned.");
  if (is_seen("free_bytes")) {
    table.notes.emplace_back(
        "free: device memory that was free before a row that did not fit; --memory-limit may have left less "
        "of it.");
  }
  if (has_peaks(rows)) {
    table.notes.emplace_back(
        "of_peak = matmul FLOP of the program / median step time / peak. Causal attention counts in full; "
        "flash skips the masked half, so long sequences may exceed 100%.");
    table.notes.emplace_back(
        "MFU = (6 N + 12 L C T) tokens/s / (ranks x peak), at the median step time (PaLM, appendix B; N: "
        "parameters without input embeddings unless tied; 4 N where weights are frozen, as with LoRA).");
  }
  std::vector<std::string> peaks;
  for (const BenchRow& row : rows) {
    const RunData& run = *row.run;
    const auto peak = run.number("peak_flop_per_s");
    if (!peak) continue;
    const std::string rate = format_cell(Cell(*peak), Show::si) + "flop/s";
    const std::string why = why_no_peak(run);
    std::string line = why.empty()
                           ? fmt::format("peak of {}: {} ({})", run.setting("device"), rate, peak_text(run))
                           : fmt::format("no of_peak and no MFU: {} of {} is not usable as a peak: {}", rate,
                                         run.setting("device"), why);
    if (std::ranges::find(peaks, line) == peaks.end()) peaks.push_back(std::move(line));
  }
  table.notes.insert(table.notes.end(), peaks.begin(), peaks.end());
  for (const BenchRow& row : rows) {
    if (row.speedup().value_or(0) > 0) table.notes.push_back(speedup_line(row, show_of_times(rows)));
  }
}

}  // namespace

std::vector<Column> columns_of_bench() {
  std::vector<Column> columns = columns_of(bench_columns({}));
  std::ranges::stable_sort(columns, {}, place_of);
  return columns;
}

Table bench_table(const RecordSet& set) {
  const std::vector<BenchRow> rows = rows_of(set);
  Table table = bench_columns(rows).table(rows);
  std::ranges::stable_sort(table.columns, {}, place_of);
  if (!rows.empty()) add_notes(table, rows);
  return table;
}

}  // namespace rooflm::report
