// Views of whole steps and phases: how long they take, sample by sample, and what observing costs.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/statistics.h"
#include "core/units.h"
#include "report/summaries.h"
#include "report/view_def.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

void set_summary(Row& row, const core::Summary& time) {
  row.set("median_s", time.median);
  row.set("ci_low_s", time.median_ci.low);
  row.set("ci_high_s", time.median_ci.high);
  row.set("mean_s", time.mean);
  row.set("std_s", time.std);
  row.set("mad_s", time.mad);
  row.set("min_s", time.min);
  row.set("max_s", time.max);
  row.set("samples", static_cast<std::int64_t>(time.count));
  row.set("outliers", static_cast<std::int64_t>(time.outliers));
}

std::vector<Column> summary_columns() {
  return {{"median_s", "median", Show::seconds, "s"},
          {"ci_low_s", "from", Show::seconds, "s"},
          {"ci_high_s", "to", Show::seconds, "s"},
          {"mean_s", "mean", Show::seconds, "s"},
          {"std_s", "std", Show::seconds, "s"},
          {"mad_s", "MAD", Show::seconds, "s"},
          {"min_s", "min", Show::seconds, "s"},
          {"max_s", "max", Show::seconds, "s"},
          {"samples", "n"},
          {"outliers", "outliers"}};
}

Row phase_row(const RunData& run, const std::string& phase, const core::Summary& time) {
  Row row;
  row.set("phase", phase);
  set_summary(row, time);
  const Work work = phase_work(run, phase);
  const Roof roof = phase_roof(run, phase, work);
  const WorkFigures figures = work_figures(work, roof.roof_s, time.median, phase_median(run, kStep));
  row.set("share_of_step", cell_of(figures.step_share));
  row.set("roof_s", cell_of(roof.roof_s));
  row.set("bound", roof.bound);
  row.set("share", cell_of(figures.roof_share));
  return row;
}

/// What lies between a step's beginning and its first phase, where that is much.
void add_wait_note(const RunData& run, Table& table) {
  constexpr double kMuch = 0.02;
  const auto wait_s = phase_median(run, kDeviceWait);
  const auto step_s = phase_median(run, kStep);
  if (!wait_s || !step_s || *wait_s < kMuch * *step_s) return;
  table.notes.push_back(
      fmt::format("{}: {} of a step pass before the device starts, because other programs use it as well",
                  run.run.label, core::format_seconds(*wait_s)));
}

void add_phases(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = summary_columns(), .rows = {}, .notes = {}};
  table.columns.insert(table.columns.begin(), Column{"phase", "phase"});
  table.columns.push_back({"share_of_step", "of step", Show::percent});
  table.columns.push_back({"roof_s", "roof", Show::seconds, "s"});
  table.columns.push_back({"share", "share", Show::percent});
  Chart chart{.id = "phases",
              .title = "Phases of the step",
              .note = "Medians of wall time without observer.",
              .kind = ChartKind::stacked,
              .x = {.title = kRunAxis},
              .y = {.title = "time", .unit = "s"}};
  for (const std::string& phase : phases_of(run)) {
    const auto time = phase_time(run, phase);
    if (!time) continue;
    table.rows.push_back(phase_row(run, phase, *time));
    const double x = category_index(chart.x, run.run.label);
    chart.series.push_back({.name = phase, .points = {{.x = x, .y = time->median}}});
  }
  if (const auto time = phase_time(run, kStep)) table.rows.push_back(phase_row(run, kStep, *time));
  add_wait_note(run, table);
  view.add("phases", "Phases", std::move(table));
  view.add(std::move(chart));
}

void add_samples(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = {{"step", "step"},
                          {"phase", "phase"},
                          {"seconds", "time", Show::seconds, "s"},
                          {"kind", "kind"},
                          {"outlier", "outlier"}},
              .rows = {},
              .notes = {}};
  Chart chart{.id = "samples",
              .title = "Time of each step",
              .kind = ChartKind::line,
              .x = {.title = "step"},
              .y = {.title = "time", .unit = "s"}};
  for (const record::Sample& sample : run.samples) {
    Row row;
    row.set("step", sample.step);
    row.set("phase", sample.phase);
    row.set("seconds", sample.seconds);
    row.set("kind", sample.kind);
    row.set("outlier", sample.outlier);
    table.rows.push_back(std::move(row));
    series_named(chart, sample.phase + (sample.kind == "plain" ? "" : ", " + sample.kind))
        .points.push_back({.x = static_cast<double>(sample.step), .y = sample.seconds});
  }
  view.add("samples", "Samples", std::move(table));
  view.add(std::move(chart));
}

/// Traced steps against their partners, and those against plain ones: what a profiler costs that is attached.
Table tracing_table(const RunData& run) {
  Table table{.columns = {{"phase", "phase"},
                          {"plain_s", "plain", Show::seconds, "s"},
                          {"untraced_s", "untraced", Show::seconds, "s"},
                          {"traced_s", "traced", Show::seconds, "s"},
                          {"cost", "cost of tracing", Show::percent},
                          {"attached_cost", "of being attached", Show::percent},
                          {"traced_steps", "steps of each"}},
              .rows = {},
              .notes = {}};
  std::vector<std::string> phases = phases_of(run);
  phases.emplace_back(kStep);
  for (const std::string& phase : phases) {
    const auto traced = phase_time(run, phase, "traced");
    const auto untraced = phase_time(run, phase, "untraced");
    if (!traced || !untraced) continue;
    const auto plain_s = phase_median(run, phase);
    const auto more = [](std::optional<double> with, std::optional<double> without) {
      const auto ratio = ratio_of(with, without);
      return ratio ? Cell(*ratio - 1) : Cell();
    };
    Row row;
    row.set("phase", phase);
    row.set("plain_s", cell_of(plain_s));
    row.set("untraced_s", untraced->median);
    row.set("traced_s", traced->median);
    row.set("cost", more(traced->median, untraced->median));
    row.set("attached_cost", more(untraced->median, plain_s));
    row.set("traced_steps", static_cast<std::int64_t>(traced->count));
    table.rows.push_back(std::move(row));
  }
  if (!run.text("tracing_cost").empty()) table.notes.push_back(run.text("tracing_cost"));
  return table;
}

void add_overhead(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = {{"phase", "phase"},
                          {"plain_s", "plain", Show::seconds, "s"},
                          {"observed_s", "observed", Show::seconds, "s"},
                          {"cost", "cost", Show::percent},
                          {"plain_mean_s", "plain mean", Show::seconds, "s"},
                          {"plain_std_s", "std", Show::seconds, "s"},
                          {"observed_mean_s", "observed mean", Show::seconds, "s"},
                          {"observed_std_s", "std", Show::seconds, "s"},
                          {"plain_steps", "plain steps"},
                          {"observed_steps", "observed steps"},
                          {"device_s", "in kernels", Show::seconds, "s"},
                          {"outside_share", "outside kernels", Show::percent}},
              .rows = {},
              .notes = {}};
  std::vector<std::string> phases = phases_of(run);
  phases.emplace_back(kStep);
  for (const std::string& phase : phases) {
    const auto plain = phase_time(run, phase);
    const auto observed = phase_time(run, phase, "observed");
    if (!plain || !observed) continue;
    const Work work = phase_work(run, phase);
    Row row;
    row.set("phase", phase);
    row.set("plain_s", plain->median);
    row.set("observed_s", observed->median);
    row.set("cost", observed->median / plain->median - 1);
    row.set("plain_mean_s", plain->mean);
    row.set("plain_std_s", plain->std);
    row.set("observed_mean_s", observed->mean);
    row.set("observed_std_s", observed->std);
    row.set("plain_steps", static_cast<std::int64_t>(plain->count));
    row.set("observed_steps", static_cast<std::int64_t>(observed->count));
    row.set("device_s", cell_of(work.measured_s()));
    row.set("outside_share", cell_of(ratio_of(work.outside_s(), work.wall_s)));
    table.rows.push_back(std::move(row));
  }
  for (const char* key :
       {"device_ranks", "observer_cost", "drift", "others_share", "clock_note", "stop_reason"}) {
    const std::string text = run.text(key);
    const char* lead = std::string_view(key) == "stop_reason" ? "Sampling stopped: " : "";
    if (!text.empty()) table.notes.push_back(lead + text);
  }
  if (!run.text("tracing").empty()) table.notes.push_back(run.text("tracing"));
  view.add("overhead", "Observed steps against plain ones", std::move(table));
  view.add("overhead.tracing", "Traced steps against untraced ones", tracing_table(run));
}

constexpr std::array kTimeViews = {
    ViewDef{.place = 20,
            .info = {.name = "phases",
                     .title = "Phases",
                     .note = "Wall time of each part of the step, without observer. The interval covers the "
                             "median with at least 95 % confidence from 6 samples on; of fewer it is their "
                             "range. share = roof / median.",
                     .needs = kNeedsSamples,
                     .is_on_page = true},
            .of_run = add_phases,
            .of_all = nullptr},
    ViewDef{.place = 130,
            .info = {.name = "samples",
                     .title = "Samples",
                     .note = "Every timed step. Outliers are marked and kept in all statistics.",
                     .needs = kNeedsSamples,
                     .is_on_page = true},
            .of_run = add_samples,
            .of_all = nullptr},
    ViewDef{.place = 170,
            .info = {.name = "overhead",
                     .title = "What measuring costs",
                     .note = "Observed steps against plain ones. Times of ops are from observed steps, "
                             "end-to-end times are not.",
                     .needs = "plain and observed steps (rooflm profile)",
                     .is_on_page = false,
                     .warns_of_load = false},
            .of_run = add_overhead,
            .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_time() { return kTimeViews; }

}  // namespace rooflm::report
