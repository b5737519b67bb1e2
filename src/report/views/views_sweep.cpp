// Views over several runs: end to end, and precision against precision.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/significance.h"
#include "core/statistics.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/runs/sweep.h"
#include "report/tables/run_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

std::string value_of(const record::Run& run, const std::string& key) {
  for (const auto& [name, value] : configuration(run)) {
    if (name == key) return value;
  }
  return "";
}

/// The runs, with what of their configurations varies.
TypedColumns<RunData> sweep_columns(const std::vector<std::string>& names) {
  TypedColumns<RunData> columns = {{"run", "run", [](const RunData& run) { return run.run.label; }}};
  for (const std::string& name : names) {
    columns.add({name.c_str(), name.c_str(),
                 [name](const RunData& run) { return known_text(value_of(run.run, name)); }});
  }
  columns.add({"status", "status", of_run::status});
  const auto add_times = [&](const std::string& phase, const std::string& title) {
    const auto of_samples = [phase](double (*statistic)(std::span<const double>)) {
      return [phase, statistic](const RunData& run) {
        const std::vector<double> seconds = run.seconds(phase);
        return seconds.empty() ? std::nullopt : std::optional(statistic(seconds));
      };
    };
    columns.add({(phase + "_mean_s").c_str(), title.c_str(), of_samples(core::mean), Show::seconds});
    columns.add({(phase + "_std_s").c_str(), "std", of_samples(core::sample_std), Show::seconds});
  };
  for (const std::string_view phase : kPhases) {
    const std::string name(phase);
    add_times(name, name);
    columns.add({(name + "_s").c_str(), [name](const RunData& run) { return phase_median(run, name); }});
  }
  add_times(kStep, "total");
  return columns.add(
      {{"step_s", "median", of_run::figure(&RunFigures::step_s), Show::seconds},
       {"ci_low_s", "from", of_run::figure(&RunFigures::step_low_s), Show::seconds},
       {"ci_high_s", "to", of_run::figure(&RunFigures::step_high_s), Show::seconds},
       {"samples", [](const RunData& run) { return run.seconds(kStep).size(); }},
       {"tokens_per_s", "tokens/s", of_run::figure(&RunFigures::tokens_per_s), Show::si, "tok/s"},
       {"mfu", "MFU", of_run::figure(&RunFigures::mfu), Show::percent},
       {"roof_share", "roof", of_run::figure(&RunFigures::roof_share), Show::percent},
       {"peak_bytes", "memory", of_run::figure(&RunFigures::peak_bytes), Show::bytes}});
}

/// A number that a sweep may go along, and what changes with it.
struct SweepAxis {
  std::string name;
  std::vector<std::string> follows{};
};

std::vector<SweepAxis> sweep_axes(const std::vector<std::string>& names) {
  std::vector<SweepAxis> axes = {{"seq"}, {"batch"}};
  // Layers alone, or models of several sizes.
  if (std::ranges::find(names, "d_model") == names.end()) axes.push_back({"layers", {"params"}});
  axes.push_back({"params", {"model", "layers", "heads", "kv_heads", "d_model", "d_ff"}});
  axes.push_back({"threads"});
  return axes;
}

/// The timed runs for which another one differs in the axis, and in what follows from it, alone.
std::vector<const record::Run*> runs_in_lines(const RecordSet& set, const std::string& axis,
                                              const std::vector<std::string>& left_out) {
  std::map<std::string, std::set<std::string>> values;
  for (const RunData& run : set.runs) {
    if (figures_of(run).step_s) values[key_without(run.run, left_out)].insert(value_of(run.run, axis));
  }
  std::vector<const record::Run*> drawn;
  for (const RunData& run : set.runs) {
    if (figures_of(run).step_s && values[key_without(run.run, left_out)].size() > 1)
      drawn.push_back(&run.run);
  }
  return drawn;
}

/// Step time against the first number that varies; the other varying values tell the series apart.
std::optional<Chart> sweep_chart(const RecordSet& set, const std::vector<std::string>& names) {
  for (const auto& [axis, follows] : sweep_axes(names)) {
    if (std::find(names.begin(), names.end(), axis) == names.end()) continue;
    Chart chart{.id = "sweep",
                .title = "Step time against " + axis,
                .kind = ChartKind::line,
                .x = {.title = axis, .is_log = true},
                .y = {.title = "step", .unit = "s", .is_log = true}};
    std::vector<std::string> left_out = follows;
    left_out.push_back(axis);
    // A collection of runs that have nothing in common has no lines; those that have name what differs among
    // them.
    const std::vector<const record::Run*> drawn = runs_in_lines(set, axis, left_out);
    const std::vector<std::string> others = telling(drawn, left_out);
    for (const RunData& run : set.runs) {
      if (std::ranges::find(drawn, &run.run) == drawn.end()) continue;
      const RunFigures figures = figures_of(run);
      const double x = std::stod(value_of(run.run, axis));
      const std::string label = short_label(run.run, others);
      series_named(chart, label.empty() ? kStep : label)
          .points.push_back(
              {.x = x, .y = *figures.step_s, .low = figures.step_low_s, .high = figures.step_high_s});
    }
    for (Series& series : chart.series) {
      std::sort(series.points.begin(), series.points.end(),
                [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    }
    if (chart.series.empty()) continue;
    return chart;
  }
  return std::nullopt;
}

/// Widest first, other matmuls of fp32 after it; names that are none of these come last.
std::size_t dtype_rank(const std::string& dtype) {
  constexpr std::array<std::string_view, 2> kOfFp32 = {"bf16x6", "tf32"};
  const auto* matmuls = std::ranges::find(kOfFp32, dtype);
  const auto known =
      core::find_dtype(&core::DTypeFacts::name, matmuls == kOfFp32.end() ? std::string_view(dtype) : "fp32");
  const std::size_t rank = known ? static_cast<std::size_t>(*known) : core::kDTypes.size();
  const std::size_t within = matmuls == kOfFp32.end() ? 0 : 1 + (matmuls - kOfFp32.begin());
  return (kOfFp32.size() + 1) * rank + within;
}

/// A part of a step in one dtype against the widest.
struct PrecisionRow {
  const RunData *base = nullptr, *run = nullptr;
  std::string subject{};
  core::Interval interval{};  ///< of the ratio of times

  [[nodiscard]] std::string dtype() const { return run->setting("dtype"); }
  [[nodiscard]] std::string against() const { return base->setting("dtype"); }
  [[nodiscard]] std::optional<double> base_s() const { return phase_median(*base, subject); }
  [[nodiscard]] std::optional<double> time_s() const { return phase_median(*run, subject); }
  [[nodiscard]] std::optional<double> speedup() const { return ratio_of(base_s(), time_s()); }
  [[nodiscard]] std::optional<double> memory_ratio() const {
    if (subject != kStep) return std::nullopt;
    return ratio_of(figures_of(*run).peak_bytes, figures_of(*base).peak_bytes);
  }
};

const TypedColumns<PrecisionRow>& precision_columns() {
  using Of = PrecisionRow;
  static const TypedColumns<Of> columns = {
      {"configuration", "against run", [](const Of& row) { return row.base->run.label; }},
      {"dtype", "dtype", &Of::dtype},
      {"against", &Of::against},
      {"subject", "part", &Of::subject},
      {"base_s", "was", &Of::base_s, Show::seconds},
      {"time_s", "is", &Of::time_s, Show::seconds},
      {"speedup", "times faster", &Of::speedup, Show::fixed2},
      {"ci_low", "from", [](const Of& row) { return row.interval.low; }, Show::fixed2},
      {"ci_high", "to", [](const Of& row) { return row.interval.high; }, Show::fixed2},
      {"memory_ratio", "memory", &Of::memory_ratio, Show::percent}};
  return columns;
}

/// Speed-up of the whole step, one bar per configuration and dtype.
std::optional<Chart> precision_chart(const std::vector<PrecisionRow>& rows) {
  Chart chart{.id = "precision",
              .title = "Speed-up of the whole step",
              .note = "Median step of the widest dtype divided by that of the other.",
              .kind = ChartKind::bar,
              .x = {.title = "configuration"},
              .y = {.title = "times faster"}};
  for (const PrecisionRow& row : rows) {
    if (row.subject != kStep) continue;
    series_named(chart, row.dtype() + " against " + row.against())
        .points.push_back({.x = category_index(chart.x, row.base->run.label),
                           .y = row.speedup().value_or(0),
                           .low = row.interval.low,
                           .high = row.interval.high});
  }
  if (chart.series.empty()) return std::nullopt;
  return chart;
}

bool is_timed(const RunData& run, const std::string& phase) {
  const std::vector<double> seconds = run.seconds(phase);
  return !seconds.empty() && std::all_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; });
}

void add_sweep(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const std::vector<std::string> names = varying(runs_of(set.runs));
  Table table = sweep_columns(names).table(set.runs);
  if (set.runs.size() != 1 && !names.empty()) table.columns.erase(table.columns.begin());
  view.add("sweep", "Runs", std::move(table));
  if (auto chart = sweep_chart(set, names)) view.add(std::move(*chart));
}

void add_precision(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::map<std::string, std::vector<const RunData*>> groups;
  for (const RunData& run : set.runs) groups[key_without(run.run, {"dtype"})].push_back(&run);
  std::vector<PrecisionRow> rows;
  for (auto& [key, runs] : groups) {
    std::stable_sort(runs.begin(), runs.end(), [](const RunData* a, const RunData* b) {
      return dtype_rank(a->setting("dtype")) < dtype_rank(b->setting("dtype"));
    });
    for (std::size_t i = 1; i < runs.size(); ++i) {
      if (runs[i]->setting("dtype") == runs[0]->setting("dtype")) continue;
      std::vector<std::string> subjects = phases_of(*runs[i]);
      subjects.emplace_back(kStep);
      for (const std::string& subject : subjects) {
        if (!is_timed(*runs[0], subject) || !is_timed(*runs[i], subject)) continue;
        rows.push_back(
            {.base = runs[0],
             .run = runs[i],
             .subject = subject,
             .interval = core::median_ratio_interval(runs[i]->seconds(subject), runs[0]->seconds(subject))});
      }
    }
  }
  if (auto chart = precision_chart(rows)) view.add(std::move(*chart));
  view.add("precision", "Speed-up by precision", precision_columns().table(rows));
}

constexpr std::array kSweepViews = {
    ViewDef{.place = 140,
            .info = {.name = "sweep",
                     .title = "End to end",
                     .note = "One line per run, of steps without observer: mean and standard deviation, then "
                             "the median of the whole step with its interval.",
                     .needs = "a run"},
            .of_all = add_sweep},
    ViewDef{.place = 160,
            .info = {.name = "precision",
                     .title = "Precision",
                     .note = "Runs that differ in dtype alone, against the widest of them: how many times "
                             "faster, and how much less memory.",
                     .needs = "runs that differ in dtype alone (a sweep over --dtype)"},
            .of_all = add_precision,
            .columns = [] { return columns_of(precision_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_sweep() { return kSweepViews; }

}  // namespace rooflm::report
