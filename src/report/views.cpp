// The views of a report by name: one row each.
#include "report/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "core/error.h"
#include "core/names.h"
#include "report/sweep.h"
#include "report/view_makers.h"

namespace rooflm::report {
namespace {

/// How a view is made: what each run adds, then what all of them add together.
struct Maker {
  void (*of_run)(const RunData&, const ViewOptions&, View&) = nullptr;
  void (*of_all)(const RecordSet&, const ViewOptions&, View&) = nullptr;
  std::string_view needs;  ///< what has to be recorded for it
};

constexpr std::size_t kViews = 19;
constexpr std::string_view kOpTimes = "observed steps (rooflm profile)";
constexpr std::string_view kSamples = "timed steps (rooflm bench or profile)";
constexpr std::string_view kMemory = "memory events (rooflm profile)";

constexpr std::array<ViewInfo, kViews> kInfo = {{
    {"overview", "Overview", "Times are wall-clock medians of steps with no observer attached.", true},
    {"phases", "Phases",
     "Wall time of each part of the step, without observer. The interval covers the median with 95 %; share "
     "is "
     "the time that the roofs allow divided by the median.",
     true},
    {"blocks", "Blocks",
     "Where the step's time goes, layers added up. device: what the kernels took; wall: with dispatch, "
     "allocation and waiting, as observed.",
     true},
    {"ops", "Kernels",
     "Kernels by total time over all observed steps, per phase; the columns of an nsys kernel summary.",
     true},
    {"classes", "Op classes",
     "The kinds of work: a class with a larger share of the time than of the FLOP is bound by something else "
     "than arithmetic.",
     false},
    {"roofline", "Roofline",
     "roof: the least time that the ceilings of this machine allow for the counted FLOP and bytes; share: "
     "roof "
     "/ measured. A low share is time that could be won; near 100 % only less work helps. Measured: of the "
     "step "
     "and its phases the wall time without observer, of their parts the time in kernels.",
     true},
    {"gap", "Launch gap",
     "(wall - device) / launches: what a launch costs outside its kernel. Many small launches with a large "
     "gap "
     "are better fused.",
     false},
    {"instances", "Instances explained",
     "How often each kernel runs in a step: layers x count per layer + the rest. 'uneven' marks counts that "
     "differ between layers.",
     false},
    {"attention", "Attention taken apart",
     "Shares of the attention block. A part whose time share is far above its FLOP share is bound by memory "
     "or by dispatch, not by arithmetic.",
     false},
    {"memory", "Memory over the step",
     "Live bytes by role at the highest moment of each phase, and the tensors alive at the peak of the step.",
     true},
    {"saved", "Saved for backward",
     "Activations that forward leaves for backward, at the moment when most of them are alive, by the block "
     "that made them. Recompute and flash attention shrink this.",
     false},
    {"allocator", "Allocator and arena",
     "What was planned, what the allocator took, what the process grew by.", false},
    {"samples", "Samples", "Every timed step. Outliers are marked and kept in all statistics.", true},
    {"sweep", "End to end",
     "One line per run, of steps without observer: mean and standard deviation, then the median of the whole "
     "step with its interval.",
     false},
    {"growth", "Growth",
     "Slope of log time against log size over the runs that differ in nothing else: 1 is linear, 2 "
     "quadratic. "
     "expected is the slope of the roof time where it is known, else of the FLOP, else of the bytes.",
     false},
    {"precision", "Precision",
     "Runs that differ in dtype alone, against the widest of them: how many times faster, and how much less "
     "memory.",
     false},
    {"overhead", "What measuring costs",
     "Observed steps against plain ones. Times of ops are from observed steps, end-to-end times are not.",
     false},
    {"input", "Input", "Waiting for data in a step.", false},
    {"cells", "Studies", "Micro-benchmarks and studies as they were recorded.", false},
}};

constexpr std::array<Maker, kViews> kMakers = {{
    {add_overview, add_machine, "a run"},
    {add_phases, nullptr, kSamples},
    {add_blocks, nullptr, kOpTimes},
    {add_ops, nullptr, kOpTimes},
    {add_classes, nullptr, kOpTimes},
    {add_roofline, add_ceilings, "ops and ceilings (rooflm profile)"},
    {add_gap, nullptr, kOpTimes},
    {add_instances, nullptr, "the ops of a step (rooflm profile)"},
    {add_attention, nullptr, kOpTimes},
    {add_memory, nullptr, kMemory},
    {add_saved, nullptr, "tensors (rooflm profile)"},
    {add_allocator, nullptr, "facts about memory (rooflm profile)"},
    {add_samples, nullptr, kSamples},
    {nullptr, add_sweep, "a run"},
    {nullptr, add_growth, "runs that differ in batch, seq or heads alone (a sweep)"},
    {nullptr, add_precision, "runs that differ in dtype alone (a sweep over --dtype)"},
    {add_overhead, nullptr, "plain and observed steps (rooflm profile)"},
    {add_input, nullptr, "facts about the loader (rooflm profile with data)"},
    {nullptr, add_cells, "a study"},
}};

/// How a run is called among several.
struct RunName {
  std::string label;  ///< its own, with a number where another run has the same
  std::string which;  ///< what tells it apart: "seq=64 bf16"; the label where that is not enough
};

/// The text, or with a number when it is among `taken`, to which the result is added.
std::string unique(const std::string& text, std::vector<std::string>& taken) {
  std::string name = text;
  for (int copy = 2; std::find(taken.begin(), taken.end(), name) != taken.end(); ++copy) {
    name = fmt::format("{} ({})", text, copy);
  }
  taken.push_back(name);
  return name;
}

std::vector<RunName> names_of(const RecordSet& set) {
  const std::vector<std::string> differing = varying(set.runs);
  std::vector<std::string> labels;
  std::vector<std::string> short_names;
  std::vector<RunName> names;
  for (const RunData& run : set.runs) {
    std::string label = unique(run.run.label, labels);
    std::string which = short_label(run.run, differing);
    which = which.empty() ? label : unique(which, short_names);
    names.push_back({.label = std::move(label), .which = std::move(which)});
  }
  return names;
}

/// Charts over runs become one chart; others stay apart, with the run in their title.
void merge_chart(View& all, Chart&& chart, const std::string& label, bool is_several, std::size_t number) {
  const auto same = std::find_if(all.charts.begin(), all.charts.end(),
                                 [&](const Chart& other) { return other.id == chart.id; });
  const bool is_over_runs = chart.x.title == kRunAxis;
  if (is_over_runs && is_several) chart.x.categories = {label};
  if (!is_over_runs || same == all.charts.end()) {
    if (is_several && !is_over_runs) {
      chart.title += ": " + label;
      chart.id += fmt::format(".{}", number);
    }
    all.charts.push_back(std::move(chart));
    return;
  }
  const double x = category_index(same->x, label);
  for (Series& series : chart.series) {
    for (ChartPoint& point : series.points) {
      point.x = x;
      series_named(*same, series.name).points.push_back(point);
    }
  }
}

/// Appends the tables of one run to those of all: same id, same table, a first column that says which run.
void merge(View& all, View&& one, const RunName& name, bool is_several, std::size_t number) {
  for (ViewTable& table : one.tables) {
    if (is_several) {
      for (Row& row : table.table.rows) {
        row.set_first("which", name.which);
        row.set_first("run", name.label);
      }
      for (std::string& note : table.table.notes) note.insert(0, name.which + ": ");
      table.table.columns.insert(table.table.columns.begin(), Column{"which", "run"});
    }
    const auto same = std::find_if(all.tables.begin(), all.tables.end(),
                                   [&](const ViewTable& other) { return other.id == table.id; });
    if (same == all.tables.end()) {
      all.tables.push_back(std::move(table));
      continue;
    }
    std::move(table.table.rows.begin(), table.table.rows.end(), std::back_inserter(same->table.rows));
    std::move(table.table.notes.begin(), table.table.notes.end(), std::back_inserter(same->table.notes));
  }
  for (Chart& chart : one.charts) merge_chart(all, std::move(chart), name.which, is_several, number);
}

}  // namespace

std::span<const ViewInfo> all_views() { return kInfo; }

std::string view_names() {
  std::string names;
  for (const ViewInfo& view : kInfo) names += (names.empty() ? "" : ", ") + std::string(view.name);
  return names;
}

const ViewInfo& find_view(std::string_view name) {
  const auto found =
      std::find_if(kInfo.begin(), kInfo.end(), [&](const ViewInfo& view) { return view.name == name; });
  if (found != kInfo.end()) return *found;
  std::vector<std::string> names;
  for (const ViewInfo& view : kInfo) names.emplace_back(view.name);
  throw core::UsageError(core::unknown_name("view", name, names));
}

View make_view(std::string_view name, const RecordSet& set, const ViewOptions& options) {
  const ViewInfo& info = find_view(name);
  const Maker& maker = kMakers.at(static_cast<std::size_t>(&info - kInfo.data()));
  View view{.name = std::string(info.name), .title = std::string(info.title), .note = std::string(info.note)};
  if (maker.of_run != nullptr) {
    const std::vector<RunName> names = names_of(set);
    for (std::size_t i = 0; i < set.runs.size(); ++i) {
      View one;
      maker.of_run(set.runs[i], options, one);
      merge(view, std::move(one), names[i], set.runs.size() > 1, i);
    }
  }
  if (maker.of_all != nullptr) maker.of_all(set, options, view);
  if (view.tables.empty() && view.charts.empty()) {
    view.note = fmt::format("Nothing to show: this view needs {}.", maker.needs);
  }
  // Said even where a record was cut short before it held a run.
  if (info.name == kInfo.front().name) {
    for (const RecordFile& file : set.files) {
      if (!file.is_complete) {
        view.note += fmt::format(" {} is partial: its run was cut short or still goes on.", file.name);
      }
    }
  }
  return view;
}

}  // namespace rooflm::report
