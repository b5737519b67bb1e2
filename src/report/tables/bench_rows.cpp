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
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/runs/sweep.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr double kMs = 1e3;

/// Whether two rows that differ in the field say nothing about their engines.
bool must_agree(const record::Field& field) {
  if (field.key == "engine" || field.key == "attention") return false;
  return field.decides || field.key == "seed" || field.key == "threads";
}

Cell cell_of_value(const record::Config::Value* value) {
  if (value == nullptr) return {};
  return std::visit([](const auto& typed) { return Cell(typed); }, *value);
}

Cell text_or_nothing(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

void set_phase(Row& row, const RunData& run, const char* phase) {
  const std::vector<double> seconds = run.seconds(phase);
  const bool is_timed = !seconds.empty();
  const core::Summary time = is_timed ? core::summarise(seconds) : core::Summary();
  row.set(fmt::format("{}_ms_mean", phase), is_timed ? Cell(time.mean * kMs) : Cell());
  row.set(fmt::format("{}_ms_std", phase), is_timed ? Cell(time.std * kMs) : Cell());
  row.set(fmt::format("{}_ms_median", phase), is_timed ? Cell(time.median * kMs) : Cell());
}

void set_step(Row& row, const RunData& run) {
  const std::vector<double> seconds = run.seconds(kStep);
  const bool is_timed = !seconds.empty();
  const core::Summary step = is_timed ? core::summarise(seconds) : core::Summary();
  const auto set = [&](const char* key, double value) { row.set(key, is_timed ? Cell(value) : Cell()); };
  set("step_ms_ci_low", step.median_ci.low * kMs);
  set("step_ms_ci_high", step.median_ci.high * kMs);
  set("step_ms_min", step.min * kMs);
  set("step_ms_mad", step.mad * kMs);
  row.set("outliers", is_timed ? Cell(static_cast<std::int64_t>(step.outliers)) : Cell());
  set("drift_ratio", step.drift.ratio);
  set("drift_p", step.drift.p);
  if (is_timed) row.set("steps", static_cast<std::int64_t>(step.count));
}

const Row* find_eager(const std::vector<Row>& rows, const Row& fused) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    const bool is_same = std::ranges::all_of(record::config_fields(), [&](const record::Field& field) {
      const std::string key(field.key);
      return !must_agree(field) || *row.find(key) == *fused.find(key);
    });
    if (row.text("engine") != "eager" || !is_same || row.text("status") != fused.text("status")) continue;
    if (row.text("attention") == fused.text("attention")) return &row;
    if (best == nullptr || row.text("attention") == "batched") best = &row;
  }
  return best;
}

bool any_row(const std::vector<Row>& rows, const char* key, std::string_view usual) {
  return std::ranges::any_of(rows, [&](const Row& row) {
    const Cell* cell = row.find(key);
    return cell != nullptr && format_cell(*cell, Show::plain) != usual;
  });
}

/// Columns that are there where some row has something to say in them.
const std::array kOptional = {Column{"recompute", "recompute"},
                              Column{"grad_accum", "grad_accum"},
                              Column{"share_of_peak", "of_peak", Show::percent},
                              Column{"mfu", "MFU", Show::percent},
                              Column{"exposed_ms", "exposed", Show::fixed2},
                              Column{"free_bytes", "free", Show::bytes},
                              Column{"speedup_over_eager", "speed-up", Show::fixed2}};

const Column& optional_column(std::string_view key) {
  return *std::ranges::find(kOptional, key, &Column::key);
}

/// Decimals of all times, in ms, with which the shortest mean has two digits if three decimals allow it.
Show show_of_times(const std::vector<Row>& rows) {
  double least_ms = HUGE_VAL;
  for (const Row& row : rows) {
    for (const char* key : {"forward_ms_mean", "backward_ms_mean", "optimizer_ms_mean", "step_ms_mean"}) {
      const double mean_ms = row.number(key);  // 0 of what was not measured
      if (mean_ms > 0) least_ms = std::min(least_ms, mean_ms);
    }
  }
  if (least_ms >= 1) return Show::fixed1;
  return least_ms >= 0.1 ? Show::fixed2 : Show::fixed3;
}

std::vector<Column> columns_for(const std::vector<Row>& rows, const RecordSet& set) {
  const Show times = show_of_times(rows);
  std::vector<Column> columns = {
      {"model", "size"},        {"arch", "kind"},       {"d_model", "d_model"}, {"d_ff", "d_ff"},
      {"layers", "num_layers"}, {"heads", "num_heads"}, {"batch", "batch"},     {"seq", "seq"}};
  if (any_row(rows, "recompute", "none")) columns.push_back(optional_column("recompute"));
  if (any_row(rows, "grad_accum", "1")) columns.push_back(optional_column("grad_accum"));
  columns.insert(columns.end(), {{"dtype", "dtype"}, {"engine", "engine"}, {"attention", "attention"}});
  // Whatever else the rows were told to differ in.
  for (const std::string& key : telling(runs_of(set.runs))) {
    const record::Field* field = record::find_field(key);
    const bool is_there = std::ranges::find(columns, key, &Column::key) != columns.end();
    if (field != nullptr && !is_there) columns.push_back({key, std::string(field->title)});
  }
  columns.insert(columns.end(), {{"status", "status"},
                                 {"forward_ms_mean", "forward_mean", times},
                                 {"forward_ms_std", "forward_std", times},
                                 {"backward_ms_mean", "backward_mean", times},
                                 {"backward_ms_std", "backward_std", times},
                                 {"backward_over_forward", "bwd/fwd", Show::fixed2},
                                 {"optimizer_ms_mean", "optimizer_mean", times},
                                 {"optimizer_ms_std", "optimizer_std", times},
                                 {"step_ms_mean", "total", times},
                                 {"tokens_per_s", "tokens/s", Show::fixed1}});
  const auto has_no_peak = [](const RunData& run) { return !why_no_peak(run).empty(); };
  if (any_row(rows, "share_of_peak", "-") || std::ranges::any_of(set.runs, has_no_peak)) {
    columns.push_back(optional_column("share_of_peak"));
    columns.push_back(optional_column("mfu"));
  }
  columns.push_back({"needed_bytes", "memory", Show::bytes});
  if (any_row(rows, "free_bytes", "-")) columns.push_back(optional_column("free_bytes"));
  if (any_row(rows, "speedup_over_eager", "-")) columns.push_back(optional_column("speedup_over_eager"));
  return columns;
}

std::string speedup_line(const Row& fused, const Row& eager, Show times) {
  return fmt::format(
      "{} B={} T={} {}: fused ({}) is {:.2f} times as fast as eager ({}): {} ms and {} ms per step",
      fused.text("model"), fused.number("batch"), fused.number("seq"), fused.text("dtype"),
      fused.text("attention"), fused.number("speedup_over_eager"), eager.text("attention"),
      format_cell(fused.number("step_ms_median"), times), format_cell(eager.number("step_ms_median"), times));
}

/// What the reader of a row should know of how its times came about.
void add_warnings(Table& table, const RecordSet& set) {
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    const RunData& run = set.runs[i];
    const Row& row = table.rows[i];
    const std::string reason = run.text("stop_reason");
    if (reason.empty()) continue;
    const std::string label = fmt::format("{} B={} T={} {} {}", row.text("model"), row.number("batch"),
                                          row.number("seq"), row.text("dtype"), row.text("engine"));
    if (reason != fmt::format("{:.0f} samples", row.number("steps"))) {
      table.notes.push_back(
          fmt::format("{}: {:.0f} steps, stopped at: {}", label, row.number("steps"), reason));
    }
    const Cell* drift_p = row.find("drift_p");
    if (std::holds_alternative<double>(*drift_p) && row.number("drift_p") < core::Drift::kAlpha) {
      table.notes.push_back(fmt::format("{}: {}", label, run.text("drift")));
    }
    const core::Neighbours neighbours = core::measure_neighbours(run.seconds(kStep));
    if (neighbours.is_significant) {
      table.notes.push_back(
          fmt::format("{}: neighbouring steps resemble each other (correlation of ranks {:.2f}): the "
                      "interval of the median "
                      "assumes independent steps and is about {:.1f} times too narrow",
                      label, neighbours.correlation, neighbours.narrowness()));
    }
    for (const char* key : {"others_share", "device_ranks", "fp8_matmuls"}) {
      if (const std::string text = run.text(key); !text.empty())
        table.notes.push_back(fmt::format("{}: {}", label, text));
    }
    if (row.number("outliers") > 0) {
      table.notes.push_back(fmt::format(
          "{}: {} of {} steps are outliers (further than 5 standard deviations, by MAD, from the median)",
          label, row.number("outliers"), row.number("steps")));
    }
  }
}

/// "6 steps", "1 thread", "6 to 57 steps": a count of the rows that were timed.
std::string counts_text(const std::vector<Row>& rows, const char* key, const char* what) {
  double least = HUGE_VAL;
  double most = 0;
  for (const Row& row : rows) {
    if (row.number("step_ms_mean") <= 0) continue;
    least = std::min(least, row.number(key));
    most = std::max(most, row.number(key));
  }
  if (least < most) return fmt::format("{:.0f} to {:.0f} {}s", least, most, what);
  return fmt::format("{:.0f} {}{}", most, what, most == 1 ? "" : "s");
}

void add_notes(Table& table, const RecordSet& set) {
  table.notes.emplace_back();
  if (any_row(table.rows, "step_ms_mean", "-")) {
    table.notes.push_back(fmt::format(
        "Times: wall time in ms, mean and standard deviation of {} after {}, {}, no observer; total is the "
        "whole "
        "step. bwd/fwd and tokens/s are of medians.",
        counts_text(table.rows, "steps", "step"), counts_text(table.rows, "warmup", "warm-up step"),
        counts_text(table.rows, "threads", "thread")));
  }
  add_warnings(table, set);
  table.notes.emplace_back("memory: weights, optimizer state, inputs and tensors of the step, as planned.");
  if (any_row(table.rows, "free_bytes", "-")) {
    table.notes.emplace_back(
        "free: device memory that was free before a row that did not fit; --memory-limit may have left less "
        "of it.");
  }
  if (any_row(table.rows, "share_of_peak", "-")) {
    table.notes.emplace_back(
        "of_peak = matmul FLOP of the program / median step time / peak. Causal attention counts in full; "
        "flash skips the masked half, so long sequences may exceed 100%.");
    table.notes.emplace_back(
        "MFU = (6 N + 12 L C T) tokens/s / (ranks x peak), at the median step time (PaLM, appendix B; N: "
        "parameters without input embeddings unless tied).");
  }
  std::vector<std::string> peaks;
  for (const RunData& run : set.runs) {
    const auto peak = run.number("peak_flop_per_s");
    if (!peak) continue;
    const std::string rate = format_cell(Cell(*peak), Show::si) + "flop/s";
    const std::string why = why_no_peak(run);
    std::string line =
        why.empty()
            ? fmt::format("peak of {}: {} ({})", run.setting("device"), rate, peak_text(run))
            : fmt::format("no of_peak and no MFU: {} of {} is no peak: {}", rate, run.setting("device"), why);
    if (std::ranges::find(peaks, line) == peaks.end()) peaks.push_back(std::move(line));
  }
  table.notes.insert(table.notes.end(), peaks.begin(), peaks.end());
  for (const Row& fused : table.rows) {
    if (fused.number("speedup_over_eager") > 0)
      table.notes.push_back(speedup_line(fused, *find_eager(table.rows, fused), show_of_times(table.rows)));
  }
}

}  // namespace

Row bench_row(const RunData& run) {
  const RunFigures figures = figures_of(run);
  Row row;
  for (const record::Field& field : record::config_fields()) {
    row.set(std::string(field.key), cell_of_value(run.run.config.find(field.key)));
  }
  const auto most_steps = run.number("max_steps");  // records of earlier versions call it steps
  row.set("steps", whole(most_steps ? most_steps : run.number("steps")));
  row.set("status", run.run.status);
  for (const char* phase : {"forward", "backward", "optimizer", kStep, kSubmit}) set_phase(row, run, phase);
  // About 2 where matmuls bind both: backward has two for each of forward.
  row.set("backward_over_forward",
          cell_of(core::ratio_of(phase_median(run, kPhases[1]), phase_median(run, kPhases[0]))));
  set_step(row, run);
  const std::optional<double> exposed_s = run.number("exposed_s");
  row.set("exposed_ms", exposed_s ? Cell(*exposed_s * kMs) : Cell());
  row.set("drift", text_or_nothing(run.text("drift")));
  row.set("others_share", cell_of(run.number("others_share")));
  row.set("stop_reason", text_or_nothing(run.text("stop_reason")));
  row.set("tokens_per_s", cell_of(figures.tokens_per_s));
  row.set("mfu", cell_of(figures.mfu));
  row.set("share_of_peak", cell_of(figures.matmul_share));
  row.set("peak_flop_per_s", cell_of(figures.peak_flop_per_s));
  row.set("datasheet_flop_per_s", cell_of(figures.datasheet_flop_per_s));
  row.set("datasheet_mfu", cell_of(figures.datasheet_mfu));
  row.set("peak_bytes", whole(run.number("peak_bytes")));
  row.set("rss_increase_bytes", is_on_gpu(run) ? Cell() : whole(run.number("rss_increase_bytes")));
  row.set("loss", cell_of(run.number("loss")));
  row.set("free_bytes", run.run.status == "oom" ? whole(run.number("free_bytes")) : Cell());
  row.set("model_flops", whole(run.number("model_flop")));
  row.set("matmul_flops", whole(run.number("matmul_flop")));
  row.set("plan_bytes", whole(run.number("plan_bytes")));
  row.set("state_bytes", whole(run.number("state_bytes")));
  row.set("needed_bytes", whole(run.number("needed_bytes")));
  for (const char* key : {"attention_forward", "attention_backward"}) {
    if (const std::string text = run.text(key); !text.empty()) row.set(key, text);
  }
  return row;
}

void set_speedups(std::vector<Row>& rows) {
  for (Row& row : rows) {
    row.set("speedup_over_eager", {});
    if (row.text("engine") != "fused" || row.number("step_ms_median") <= 0) continue;
    const Row* eager = find_eager(rows, row);
    if (eager != nullptr) {
      row.set("speedup_over_eager", eager->number("step_ms_median") / row.number("step_ms_median"));
    }
  }
}

std::vector<Column> columns_of_bench() {
  RecordSet set;
  RunData& run = set.runs.emplace_back();
  for (const char* key : {"attention_forward", "attention_backward"})
    run.facts.push_back({.key = key, .value = {}, .unit = {}, .text = "library"});
  Table table = bench_table(set);
  std::vector<Column> columns = std::move(table.columns);
  columns.insert(columns.end(), kOptional.begin(), kOptional.end());
  for (const record::Field& field : record::config_fields())
    columns.push_back({std::string(field.key), std::string(field.title)});
  for (const auto& [key, cell] : table.rows.front().cells()) columns.push_back({key, key});
  return columns;
}

Table bench_table(const RecordSet& set) {
  std::vector<Row> rows;
  for (const RunData& run : set.runs) rows.push_back(bench_row(run));
  set_speedups(rows);
  Table table{.columns = columns_for(rows, set), .rows = {}, .notes = {}};
  table.rows = std::move(rows);
  if (!table.rows.empty()) add_notes(table, set);
  return table;
}

}  // namespace rooflm::report
