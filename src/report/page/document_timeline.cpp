// The timeline of a run, as a part of the document.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "report/model/gaps.h"
#include "report/model/traced_kernels.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"
#include "report/page/packed.h"
#include "report/page/timeline.h"

namespace rooflm::report {
namespace {

/// One packed column: `get` of every event.
template <class Get>
std::string column_of(const std::vector<TimelineEvent>& events, const Get& get) {
  std::vector<std::int64_t> values;
  values.reserve(events.size());
  for (const TimelineEvent& event : events) values.push_back(static_cast<std::int64_t>(get(event)));
  return pack(values);
}

/// -1 where there is none.
template <class Number>
std::int64_t or_none(const std::optional<Number>& value) {
  return value ? static_cast<std::int64_t>(*value) : -1;
}

Json json_events(const std::vector<TimelineEvent>& events) {
  const auto column = [&](const auto& get) { return column_of(events, get); };
  return {{"count", events.size()},
          {"start_ns", column([](const TimelineEvent& event) { return event.start_ns; })},
          {"ns", column([](const TimelineEvent& event) { return event.end_ns - event.start_ns; })},
          {"lane", column([](const TimelineEvent& event) { return event.lane; })},
          {"name", column([](const TimelineEvent& event) { return event.name; })},
          {"class", column([](const TimelineEvent& event) { return event.event_class; })},
          {"op", column([](const TimelineEvent& event) { return or_none(event.op); })},
          {"launch", column([](const TimelineEvent& event) { return or_none(event.launch); })},
          {"cause", column([](const TimelineEvent& event) { return or_none(event.cause); })},
          {"bytes", column([](const TimelineEvent& event) { return event.bytes; })}};
}

/// What is known of a launch, by the keys of record::Activity::extra.
Json json_launch(const LaunchShape& launch) {
  Json json = Json::object();
  const auto extent = [&](const char* key, const std::array<std::int64_t, 3>& value) {
    if (value != std::array<std::int64_t, 3>{}) json[key] = value;
  };
  const auto number = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  extent("grid", launch.grid);
  extent("block", launch.block);
  extent("cluster", launch.cluster);
  number("registers", launch.registers);
  number("shared_static", launch.shared_static);
  number("shared_dynamic", launch.shared_dynamic);
  number("local", launch.local);
  number("occupancy", launch.occupancy);
  if (!launch.occupancy_limit.empty()) json["occupancy_limit"] = launch.occupancy_limit;
  number("waves", launch.waves);
  number("tail", launch.tail());
  return json;
}

/// The unit in which the largest value has about six digits: a power of ten, 1 for whole numbers such as
/// bytes.
double step_of(const TimelineSeries& series) {
  constexpr int kDigits = 6;
  double largest = 0;
  bool is_whole = true;
  for (const double value : series.value) {
    largest = std::max(largest, std::abs(value));
    is_whole = is_whole && value == std::round(value);
  }
  if ((is_whole && largest < 0x1p53) || largest == 0) return 1;
  return std::pow(10.0, std::floor(std::log10(largest)) + 1 - kDigits);
}

Json json_series(const TimelineSeries& series) {
  const double step = step_of(series);
  std::vector<std::int64_t> values;
  values.reserve(series.value.size());
  for (const double value : series.value) values.push_back(std::llround(value / step));
  return {{"name", series.name},  {"device", series.device},      {"unit", series.unit},
          {"step", step},         {"count", series.value.size()}, {"time_ns", pack(series.time_ns)},
          {"value", pack(values)}};
}

}  // namespace

Json json_timeline(const Timeline& timeline) {
  if (timeline.events.empty()) return nullptr;
  static const TypedColumns<TimelineStep> step_columns = {{"step", &TimelineStep::step},
                                                          {"kind", &TimelineStep::kind},
                                                          {"start_ns", &TimelineStep::start_ns},
                                                          {"end_ns", &TimelineStep::end_ns}};
  Json lanes = Json::array();
  for (const TimelineLane& lane : timeline.lanes) {
    lanes.push_back({{"name", lane.name}, {"kind", lane.kind}, {"device", lane.device}});
    if (lane.rank) lanes.back()["rank"] = *lane.rank;
  }
  Json names = Json::array();
  for (const TimelineName& name : timeline.names) {
    Json json = {{"kind", name.kind}, {"text", name.text}, {"work", is_work(name.kind)}};
    if (name.short_text != name.text) json["short"] = name.short_text;
    names.push_back(std::move(json));
  }
  Json launches = Json::array();
  for (const LaunchShape& launch : timeline.launches) launches.push_back(json_launch(launch));
  Json series = Json::array();
  for (const TimelineSeries& one : timeline.series) series.push_back(json_series(one));
  return {{"source", timeline.source},
          {"notes", timeline.notes},
          {"steps", json_objects(step_columns, timeline.steps)},
          {"shown", timeline.shown},
          {"lanes", std::move(lanes)},
          {"names", std::move(names)},
          {"classes", timeline.classes},
          {"launches", std::move(launches)},
          {"events", json_events(timeline.events)},
          {"series", std::move(series)}};
}

Json json_gaps(const RunData& run, const Timeline& timeline) {
  constexpr std::size_t kMostGaps = 50;
  const TracedKernels& kernels = traced_kernels(run);
  /// On the timeline; nothing where it shows no step that has the gap.
  const auto shown = [&](std::int64_t Gap::*at) {
    return [&timeline, at](const Gap& gap) -> std::optional<std::int64_t> {
      const std::int64_t start_ns = gap.start_ns - timeline.origin_ns;
      const std::int64_t end_ns = gap.end_ns - timeline.origin_ns;
      const bool is_shown = timeline.steps.empty()
                                ? !timeline.events.empty()
                                : std::ranges::any_of(timeline.steps, [&](const auto& step) {
                                    return step.start_ns <= start_ns && end_ns <= step.end_ns;
                                  });
      return is_shown ? std::optional(gap.*at - timeline.origin_ns) : std::nullopt;
    };
  };
  const TypedColumns<Gap> columns = {
      {"step",
       [](const Gap& gap) { return gap.step == kWholeRecording ? std::nullopt : std::optional(gap.step); }},
      {"start_ns", shown(&Gap::start_ns)},
      {"end_ns", shown(&Gap::end_ns)},
      {"at_s", [](const Gap& gap) { return static_cast<double>(gap.start_ns - gap.step_start_ns) * 1e-9; }},
      {"seconds", &Gap::seconds},
      {"device", &Gap::device},
      {"cause", &Gap::cause},
      {"next",
       [&](const Gap& gap) {
         const TracedKernel* next = gap.next ? kernels.find(*gap.next) : nullptr;
         return next == nullptr ? "end of the step" : next->name->short_name;
       }},
      {"host", &Gap::host},
      {"within", &Gap::within},
      {"line", &Gap::line}};
  return json_objects(columns, gaps_of(run, kMostGaps));
}

}  // namespace rooflm::report
