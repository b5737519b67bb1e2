// Views of whole steps and phases: how long they take, sample by sample, and what observing costs.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/units.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

const TypedColumns<core::Summary>& summary_columns() {
  using core::Summary;
  static const TypedColumns<Summary> columns = {
      {"median_s", "median", &Summary::median, Show::seconds},
      {"ci_low_s", "from", [](const Summary& time) { return time.median_ci.low; }, Show::seconds},
      {"ci_high_s", "to", [](const Summary& time) { return time.median_ci.high; }, Show::seconds},
      {"mean_s", "mean", &Summary::mean, Show::seconds},
      {"std_s", "std", &Summary::std, Show::seconds},
      {"mad_s", "MAD", &Summary::mad, Show::seconds},
      {"min_s", "min", &Summary::min, Show::seconds},
      {"max_s", "max", &Summary::max, Show::seconds},
      {"samples", "n", &Summary::count},
      {"outliers", "outliers", &Summary::outliers}};
  return columns;
}

struct Phase {
  std::string name;
  core::Summary time;
  Roof roof;
  WorkFigures figures;
};

Phase phase_of(const RunData& run, const std::string& name, const core::Summary& time) {
  const Work work = phase_work(run, name);
  const Roof roof = phase_roof(run, name, work);
  return {.name = name,
          .time = time,
          .roof = roof,
          .figures = work_figures(work, roof.roof_s, time.median, phase_median(run, kStep))};
}

const TypedColumns<Phase>& phase_columns() {
  static const TypedColumns<Phase> columns =
      TypedColumns<Phase>({{"phase", "phase", &Phase::name}})
          .add(summary_columns(), &Phase::time)
          .add({"share_of_step", "of step", [](const Phase& phase) { return phase.figures.step_share; },
                Show::percent})
          .add({"roof_s", "roof", [](const Phase& phase) { return phase.roof.roof_s; }, Show::seconds})
          .add({"bound", [](const Phase& phase) { return phase.roof.bound; }})
          .add(
              {"share", "share", [](const Phase& phase) { return phase.figures.roof_share; }, Show::percent});
  return columns;
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
  std::vector<Phase> phases;
  Chart chart{.id = "phases",
              .title = "Phases of the step",
              .note = "Medians of wall time without observer.",
              .kind = ChartKind::stacked,
              .x = {.title = kRunAxis},
              .y = {.title = "time", .unit = "s"}};
  for (const std::string& phase : phases_of(run)) {
    const auto time = phase_time(run, phase);
    if (!time) continue;
    phases.push_back(phase_of(run, phase, *time));
    const double x = category_index(chart.x, run.run.label);
    chart.series.push_back({.name = phase, .points = {{.x = x, .y = time->median}}});
  }
  if (const auto time = phase_time(run, kStep)) phases.push_back(phase_of(run, kStep, *time));
  Table table = phase_columns().table(phases);
  add_wait_note(run, table);
  view.add("phases", "Phases", std::move(table));
  view.add(std::move(chart));
}

const TypedColumns<record::Sample>& sample_columns() {
  using record::Sample;
  static const TypedColumns<Sample> columns = {{"step", "step", &Sample::step},
                                               {"phase", "phase", &Sample::phase},
                                               {"seconds", "time", &Sample::seconds, Show::seconds},
                                               {"kind", "kind", &Sample::kind},
                                               {"outlier", "outlier", &Sample::outlier}};
  return columns;
}

void add_samples(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Chart chart{.id = "samples",
              .title = "Time of each step",
              .kind = ChartKind::line,
              .x = {.title = "step"},
              .y = {.title = "time", .unit = "s"}};
  for (const record::Sample& sample : run.samples) {
    series_named(chart, sample.phase + (sample.kind == "plain" ? "" : ", " + sample.kind))
        .points.push_back({.x = static_cast<double>(sample.step), .y = sample.seconds});
  }
  view.add("samples", "Samples", sample_columns().table(run.samples));
  view.add(std::move(chart));
}

std::vector<std::string> phases_and_step(const RunData& run) {
  std::vector<std::string> phases = phases_of(run);
  phases.emplace_back(kStep);
  return phases;
}

/// A phase in two kinds of steps: as it is, and watched.
struct Watched {
  std::string phase;
  std::optional<double> plain_s;
  core::Summary without, with;
  Work work;
  [[nodiscard]] double cost() const { return with.median / without.median - 1; }
  [[nodiscard]] std::optional<double> attached_cost() const {
    const auto ratio = ratio_of(without.median, plain_s);
    return ratio ? std::optional(*ratio - 1) : std::nullopt;
  }
};

/// Of the phases that were timed in steps of both kinds.
std::vector<Watched> watched_phases(const RunData& run, const char* without_kind, const char* with_kind) {
  std::vector<Watched> all;
  for (const std::string& phase : phases_and_step(run)) {
    const auto without = phase_time(run, phase, without_kind);
    const auto with = phase_time(run, phase, with_kind);
    if (!without || !with) continue;
    all.push_back({.phase = phase,
                   .plain_s = phase_median(run, phase),
                   .without = *without,
                   .with = *with,
                   .work = phase_work(run, phase)});
  }
  return all;
}

/// Traced steps against their partners, and those against plain ones: what a profiler costs that is attached.
const TypedColumns<Watched>& tracing_columns() {
  static const TypedColumns<Watched> columns = {
      {"phase", "phase", &Watched::phase},
      {"plain_s", "plain", &Watched::plain_s, Show::seconds},
      {"untraced_s", "untraced", [](const Watched& one) { return one.without.median; }, Show::seconds},
      {"traced_s", "traced", [](const Watched& one) { return one.with.median; }, Show::seconds},
      {"cost", "cost of tracing", &Watched::cost, Show::percent},
      {"attached_cost", "of being attached", &Watched::attached_cost, Show::percent},
      {"traced_steps", "steps of each", [](const Watched& one) { return one.with.count; }}};
  return columns;
}

const TypedColumns<Watched>& overhead_columns() {
  static const TypedColumns<Watched> columns = {
      {"phase", "phase", &Watched::phase},
      {"plain_s", "plain", [](const Watched& one) { return one.without.median; }, Show::seconds},
      {"observed_s", "observed", [](const Watched& one) { return one.with.median; }, Show::seconds},
      {"cost", "cost", &Watched::cost, Show::percent},
      {"plain_mean_s", "plain mean", [](const Watched& one) { return one.without.mean; }, Show::seconds},
      {"plain_std_s", "std", [](const Watched& one) { return one.without.std; }, Show::seconds},
      {"observed_mean_s", "observed mean", [](const Watched& one) { return one.with.mean; }, Show::seconds},
      {"observed_std_s", "std", [](const Watched& one) { return one.with.std; }, Show::seconds},
      {"plain_steps", "plain steps", [](const Watched& one) { return one.without.count; }},
      {"observed_steps", "observed steps", [](const Watched& one) { return one.with.count; }},
      {"device_s", "in kernels", [](const Watched& one) { return one.work.measured_s(); }, Show::seconds},
      {"outside_share", "outside kernels",
       [](const Watched& one) { return ratio_of(one.work.outside_s(), one.work.wall_s); }, Show::percent}};
  return columns;
}

void add_overhead(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table = overhead_columns().table(watched_phases(run, "plain", "observed"));
  for (const char* key :
       {"device_ranks", "observer_cost", "drift", "others_share", "clock_note", "stop_reason"}) {
    const std::string text = run.text(key);
    const char* lead = std::string_view(key) == "stop_reason" ? "Sampling stopped: " : "";
    if (!text.empty()) table.notes.push_back(lead + text);
  }
  if (!run.text("tracing").empty()) table.notes.push_back(run.text("tracing"));
  view.add("overhead", "Observed steps against plain ones", std::move(table));
  Table traced = tracing_columns().table(watched_phases(run, "untraced", "traced"));
  if (!run.text("tracing_cost").empty()) traced.notes.push_back(run.text("tracing_cost"));
  view.add("overhead.tracing", "Traced steps against untraced ones", std::move(traced));
}

constexpr std::array kTimeViews = {
    ViewDef{.place = 20,
            .info = {.name = "phases",
                     .title = "Phases",
                     .note = "Wall time of each part of the step, without observer. The interval covers the "
                             "median with at least 95 % confidence from 6 samples on; with fewer, it is "
                             "their range. share = roof / median.",
                     .needs = kNeedsSamples,
                     .is_on_page = true},
            .of_run = add_phases,
            .columns = [] { return columns_of(phase_columns()); }},
    ViewDef{.place = 130,
            .info = {.name = "samples",
                     .title = "Samples",
                     .note = "Every timed step. Outliers are marked and kept in all statistics.",
                     .needs = kNeedsSamples,
                     .is_on_page = true},
            .of_run = add_samples,
            .columns = [] { return columns_of(sample_columns()); }},
    ViewDef{.place = 170,
            .info = {.name = "overhead",
                     .title = "What measuring costs",
                     .note = "Observed steps against plain ones. Times of ops are from observed steps, "
                             "end-to-end times are not.",
                     .needs = "plain and observed steps (rooflm profile)",
                     .warns_of_load = false},
            .of_run = add_overhead,
            .columns = [] { return columns_of(overhead_columns(), tracing_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_time() { return kTimeViews; }

}  // namespace rooflm::report
