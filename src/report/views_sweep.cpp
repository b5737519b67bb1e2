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
#include "report/run_figures.h"
#include "report/summaries.h"
#include "report/sweep.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

Row sweep_row(const RunData& run, const std::vector<std::string>& names) {
  const RunFigures figures = figures_of(run);
  Row row;
  row.set("run", run.run.label);
  for (const auto& [name, value] : configuration(run.run)) {
    if (std::find(names.begin(), names.end(), name) != names.end()) row.set(name, value);
  }
  row.set("status", run.run.status);
  for (const std::string_view phase : kPhases) {
    row.set(std::string(phase) + "_s", cell_of(phase_median(run, phase)));
  }
  for (const char* subject : {"forward", "backward", "optimizer", "step"}) {
    const std::vector<double> seconds = run.seconds(subject);
    const bool is_timed = !seconds.empty();
    row.set(std::string(subject) + "_mean_s", is_timed ? Cell(core::mean(seconds)) : Cell());
    row.set(std::string(subject) + "_std_s", is_timed ? Cell(core::sample_std(seconds)) : Cell());
  }
  row.set("step_s", cell_of(figures.step_s));
  row.set("ci_low_s", cell_of(figures.step_low_s));
  row.set("ci_high_s", cell_of(figures.step_high_s));
  row.set("samples", static_cast<std::int64_t>(run.seconds(kStep).size()));
  row.set("tokens_per_s", cell_of(figures.tokens_per_s));
  row.set("mfu", cell_of(figures.mfu));
  row.set("roof_share", cell_of(figures.roof_share));
  row.set("peak_bytes", cell_of(figures.peak_bytes));
  return row;
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

std::string value_of(const record::Run& run, const std::string& key) {
  for (const auto& [name, value] : configuration(run)) {
    if (name == key) return value;
  }
  return "";
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

Row precision_row(const RunData& base, const RunData& run, const std::string& subject) {
  const std::vector<double> was = base.seconds(subject);
  const std::vector<double> is = run.seconds(subject);
  Row row;
  row.set("configuration", base.run.label);
  row.set("dtype", run.setting("dtype"));
  row.set("against", base.setting("dtype"));
  row.set("subject", subject);
  row.set("base_s", cell_of(phase_median(base, subject)));
  row.set("time_s", cell_of(phase_median(run, subject)));
  row.set("speedup", cell_of(ratio_of(phase_median(base, subject), phase_median(run, subject))));
  const core::Interval interval = core::median_ratio_interval(is, was);
  row.set("ci_low", interval.low);
  row.set("ci_high", interval.high);
  if (subject == kStep) {
    row.set("memory_ratio", cell_of(ratio_of(figures_of(run).peak_bytes, figures_of(base).peak_bytes)));
  }
  return row;
}

/// Speed-up of the whole step, one bar per configuration and dtype.
std::optional<Chart> precision_chart(const Table& table) {
  Chart chart{.id = "precision",
              .title = "Speed-up of the whole step",
              .note = "Median step of the widest dtype divided by that of the other.",
              .kind = ChartKind::bar,
              .x = {.title = "configuration"},
              .y = {.title = "times faster"}};
  for (const Row& row : table.rows) {
    if (row.text("subject") != kStep) continue;
    series_named(chart, row.text("dtype") + " against " + row.text("against"))
        .points.push_back({.x = category_index(chart.x, row.text("configuration")),
                           .y = row.number("speedup"),
                           .low = row.number("ci_low"),
                           .high = row.number("ci_high")});
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
  Table table;
  if (set.runs.size() == 1 || names.empty()) table.columns.push_back({"run", "run"});
  for (const std::string& name : names) table.columns.push_back({name, name});
  const std::vector<Column> columns = {{"status", "status"},
                                       {"forward_mean_s", "forward", Show::seconds, "s"},
                                       {"forward_std_s", "std", Show::seconds, "s"},
                                       {"backward_mean_s", "backward", Show::seconds, "s"},
                                       {"backward_std_s", "std", Show::seconds, "s"},
                                       {"optimizer_mean_s", "optimizer", Show::seconds, "s"},
                                       {"optimizer_std_s", "std", Show::seconds, "s"},
                                       {"step_mean_s", "total", Show::seconds, "s"},
                                       {"step_std_s", "std", Show::seconds, "s"},
                                       {"step_s", "median", Show::seconds, "s"},
                                       {"ci_low_s", "from", Show::seconds, "s"},
                                       {"ci_high_s", "to", Show::seconds, "s"},
                                       {"tokens_per_s", "tokens/s", Show::si, "tok/s"},
                                       {"mfu", "MFU", Show::percent},
                                       {"roof_share", "roof", Show::percent},
                                       {"peak_bytes", "memory", Show::bytes, "byte"}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (const RunData& run : set.runs) table.rows.push_back(sweep_row(run, names));
  view.add("sweep", "Runs", std::move(table));
  if (auto chart = sweep_chart(set, names)) view.add(std::move(*chart));
}

void add_precision(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::map<std::string, std::vector<const RunData*>> groups;
  for (const RunData& run : set.runs) groups[key_without(run.run, {"dtype"})].push_back(&run);
  Table table{.columns = {{"configuration", "against run"},
                          {"dtype", "dtype"},
                          {"subject", "part"},
                          {"base_s", "was", Show::seconds, "s"},
                          {"time_s", "is", Show::seconds, "s"},
                          {"speedup", "times faster", Show::fixed2},
                          {"ci_low", "from", Show::fixed2},
                          {"ci_high", "to", Show::fixed2},
                          {"memory_ratio", "memory", Show::percent}},
              .rows = {},
              .notes = {}};
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
        table.rows.push_back(precision_row(*runs[0], *runs[i], subject));
      }
    }
  }
  if (auto chart = precision_chart(table)) view.add(std::move(*chart));
  view.add("precision", "Speed-up by precision", std::move(table));
}

constexpr std::array kSweepViews = {
    ViewDef{.place = 140,
            .info = {.name = "sweep",
                     .title = "End to end",
                     .note = "One line per run, of steps without observer: mean and standard deviation, then "
                             "the median of the whole step with its interval.",
                     .needs = "a run",
                     .is_on_page = false},
            .of_run = nullptr,
            .of_all = add_sweep},
    ViewDef{.place = 160,
            .info = {.name = "precision",
                     .title = "Precision",
                     .note = "Runs that differ in dtype alone, against the widest of them: how many times "
                             "faster, and how much less memory.",
                     .needs = "runs that differ in dtype alone (a sweep over --dtype)",
                     .is_on_page = false},
            .of_run = nullptr,
            .of_all = add_precision},
};

}  // namespace

std::span<const ViewDef> views_sweep() { return kSweepViews; }

}  // namespace rooflm::report
