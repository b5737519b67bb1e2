// What ran when: the events of a run on their lanes.
#include "report/page/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>

#include "report/model/activity_names.h"
#include "report/model/device_times.h"
#include "report/model/kernel_names.h"
#include "report/model/kernels.h"
#include "report/page/timeline_builder.h"

namespace rooflm::report {
namespace {

/// Of a program without steps, or of one step that is longer than any step should be.
constexpr std::size_t kMostActivities = 400'000;
/// Nanoseconds, 36 years: sums and differences of times below it are 64-bit numbers.
constexpr std::int64_t kMostTime = std::int64_t{1} << 60U;

bool is_among(std::string_view kind, std::initializer_list<std::string_view> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

bool is_possible(std::int64_t start_ns, std::int64_t end_ns) {
  return -kMostTime < start_ns && start_ns <= end_ns && end_ns < kMostTime;
}

bool is_timed(const record::Event& event) {
  return event.device_ns < kMostTime && is_possible(event.start_ns, event.start_ns) &&
         is_possible(event.start_ns, event.start_ns + event.device_ns);
}

int place_of(const TimelineLane& lane) {
  constexpr std::array<std::string_view, 4> kOrder{"range", "idle", "device", "link"};
  return static_cast<int>(std::ranges::find(kOrder, lane.kind) - kOrder.begin());
}

}  // namespace

bool is_work(std::string_view kind) { return is_device_kind(kind) || is_among(kind, {"op", "pass"}); }

std::string class_of_event(const TimelineName& name, const record::Op* op) {
  if (is_copy_kind(name.kind)) return "copy";
  if (name.kind == "pass") return name.text.substr(0, name.text.find_first_of(" ,"));
  if (name.kind == "idle") return "idle: " + name.text;
  if (name.kind == "kernel") return class_of_kernel(parse_kernel_name(name.text), op);
  if (name.kind != "op") return name.kind;
  return op == nullptr || op->op_class.empty() ? std::string(kUnknownClass) : op->op_class;
}

void TimelineBuilder::Span::include(std::int64_t start, std::int64_t end) {
  start_ns = events == 0 ? start : std::min(start_ns, start);
  end_ns = events == 0 ? end : std::max(end_ns, end);
  ++events;
}

std::size_t TimelineBuilder::name_of(const std::string& kind, const std::string& text) {
  const auto [entry, is_new] = names_.try_emplace({kind, text}, timeline_.names.size());
  if (is_new) {
    const auto known = short_names_.find(text);
    std::string short_text = kind == "op" ? parse_kernel_name(text).short_name : text;
    if (kind == "kernel" && known != short_names_.end()) short_text = known->second;
    timeline_.names.push_back({.kind = kind, .text = text, .short_text = std::move(short_text)});
  }
  return entry->second;
}

std::size_t TimelineBuilder::class_of(const std::string& name) {
  const auto [entry, is_new] = classes_.try_emplace(name, timeline_.classes.size());
  if (is_new) timeline_.classes.push_back(name);
  return entry->second;
}

std::optional<std::size_t> TimelineBuilder::launch_of(const std::string& extra) {
  if (extra.empty()) return std::nullopt;
  const LaunchShape shape = parse_launch(extra);
  const auto number = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("-"); };
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", fmt::join(shape.grid, ","), fmt::join(shape.block, ","),
                  fmt::join(shape.cluster, ","), number(shape.registers), number(shape.shared_static),
                  number(shape.shared_dynamic), number(shape.local), number(shape.occupancy),
                  number(shape.waves), shape.occupancy_limit);
  static const std::string kNothing = "0,0,0 0,0,0 0,0,0 - - - - - - ";
  if (key == kNothing) return std::nullopt;
  const auto [entry, is_new] = launches_.try_emplace(key, timeline_.launches.size());
  if (is_new) timeline_.launches.push_back(shape);
  return entry->second;
}

std::size_t TimelineBuilder::lane_of(const TimelineLane& lane) {
  for (std::size_t i = 0; i < timeline_.lanes.size(); ++i) {
    const TimelineLane& other = timeline_.lanes[i];
    if (std::tie(other.name, other.kind, other.device) == std::tie(lane.name, lane.kind, lane.device))
      return i;
  }
  timeline_.lanes.push_back(lane);
  return timeline_.lanes.size() - 1;
}

std::optional<std::size_t> TimelineBuilder::step_place(std::int64_t step) const {
  const auto found = std::ranges::find(timeline_.steps, step, &TimelineStep::step);
  if (found == timeline_.steps.end()) return std::nullopt;
  return static_cast<std::size_t>(found - timeline_.steps.begin());
}

const record::Op* TimelineBuilder::op_of(const std::optional<std::int64_t>& op) const {
  const TimedOp* found = op ? run_.find_op(*op) : nullptr;
  return found == nullptr ? nullptr : &found->op;
}

void TimelineBuilder::add_activity(const record::Activity& activity,
                                   const std::map<std::int64_t, const record::ActivityName*>& names) {
  const auto name = names.find(activity.name);
  const std::string kind = name == names.end() ? "unknown" : name->second->kind;
  TimelineEvent event;
  event.start_ns = activity.start_ns;
  event.end_ns = activity.end_ns;
  const auto [lane, is_new] = lanes_.try_emplace(activity.lane, 0);
  if (is_new) {
    const auto known = std::ranges::find(run_.lanes, activity.lane, &record::Lane::lane);
    TimelineLane made{.name = "lane " + std::to_string(activity.lane), .kind = "device"};
    if (known != run_.lanes.end()) {
      made = {.name = known->name.empty() ? made.name : known->name,
              .kind = known->kind,
              .device = known->device};
    }
    lane->second = lane_of(made);
  }
  event.lane = lane->second;
  event.name = name_of(kind, name == names.end() ? "unknown" : name->second->text);
  event.event_class = class_of(class_of_event(timeline_.names[event.name], op_of(activity.op)));
  if (activity.step) event.step = step_place(*activity.step);
  event.op = activity.op;
  event.launch = launch_of(activity.extra);
  event.bytes = activity.bytes.value_or(0);
  drafts_.push_back({event, activity.correlation});
}

TimelineBuilder::Spans TimelineBuilder::activity_spans() const {
  Spans spans;
  for (const record::Activity& activity : run_.activities) {
    if (!is_possible(activity.start_ns, activity.end_ns)) continue;
    if (activity.step) spans[*activity.step].include(activity.start_ns, activity.end_ns);
  }
  // A step says itself from when to when it is: a replay that was held begins after the call that submitted
  // it.
  const ActivityNames known(run_);
  for (const record::Activity& activity : run_.activities) {
    if (!activity.step || !is_possible(activity.start_ns, activity.end_ns)) continue;
    if (known.kind(activity) != "range" || known.text(activity) != kStepRange) continue;
    spans[*activity.step].start_ns = activity.start_ns;
    spans[*activity.step].end_ns = activity.end_ns;
  }
  return spans;
}

void TimelineBuilder::take_activities() {
  timeline_.source = "activities";
  choose_steps(activity_spans());
  std::set<std::int64_t> started;  // correlations of what ran in a chosen step
  for (const record::Activity& activity : run_.activities) {
    if (activity.step && activity.correlation && step_place(*activity.step))
      started.insert(*activity.correlation);
  }
  // What has no step (a call of the host, a range around everything) is of those in which it ran or which it
  // started.
  const auto is_here = [&](const record::Activity& activity) {
    if (!is_possible(activity.start_ns, activity.end_ns)) return false;
    if (timeline_.steps.empty()) return true;
    if (activity.step) return step_place(*activity.step).has_value();
    if (activity.correlation && started.contains(*activity.correlation)) return true;
    return std::ranges::any_of(timeline_.steps, [&](const TimelineStep& step) {
      return activity.start_ns <= step.end_ns && activity.end_ns >= step.start_ns;
    });
  };
  std::vector<const record::Activity*> here;
  for (const record::Activity& activity : run_.activities) {
    if (is_here(activity)) here.push_back(&activity);
  }
  if (here.size() > kMostActivities) {
    std::ranges::stable_sort(here, {}, &record::Activity::start_ns);
    timeline_.notes.push_back(
        fmt::format("The first {} of {} activities are here.", kMostActivities, here.size()));
    here.resize(kMostActivities);
  }
  std::map<std::int64_t, const record::ActivityName*> names;
  for (const record::ActivityName& name : run_.activity_names) names[name.name] = &name;
  for (const record::Activity* activity : here) add_activity(*activity, names);
}

TimelineBuilder::Spans TimelineBuilder::op_spans() const {
  Spans spans;
  for (const record::Event& event : run_.events) {
    if (is_timed(event)) spans[event.step].include(event.start_ns, event.start_ns + event.device_ns);
  }
  return spans;
}

/// One bar per execution of an op, on a lane per lane of the program.
void TimelineBuilder::take_ops() {
  timeline_.source = "ops";
  choose_steps(op_spans());
  const bool is_gpu = is_on_gpu(run_);
  const std::string device = run_.setting("device").empty() ? "cpu" : run_.setting("device");
  bool was_submitted = false;
  std::map<std::size_t, std::int64_t> lane_end;
  for (const record::Event& event : run_.events) {
    const auto step = step_place(event.step);
    if (!step || !is_timed(event)) continue;
    const record::Op* op = op_of(event.op);
    const std::string lane = op == nullptr ? "compute" : op->lane;
    TimelineEvent made;
    made.lane =
        lane_of({.name = lane == "compute" ? "ops" : "ops, " + lane, .kind = "device", .device = device});
    made.start_ns = event.start_ns;
    // A GPU that takes orders runs them one after the other, later than they were given.
    if (is_gpu && event.wall_ns) {
      was_submitted = true;
      const auto end = lane_end.find(made.lane);
      if (end != lane_end.end()) made.start_ns = std::max(made.start_ns, end->second);
    }
    made.end_ns = made.start_ns + event.device_ns;
    lane_end[made.lane] = made.end_ns;
    TimelineStep& whole = timeline_.steps[*step];
    whole.end_ns = std::max(whole.end_ns, made.end_ns);
    made.name = name_of("op", op == nullptr ? fmt::format("op {}", event.op) : kernel_name(*op));
    made.event_class = class_of(class_of_event(timeline_.names[made.name], op));
    made.step = step;
    made.op = event.op;
    drafts_.push_back({made, std::nullopt});
  }
  timeline_.notes.emplace_back("The record holds no activities: each bar is one execution of an op.");
  if (was_submitted) {
    timeline_.notes.emplace_back(
        "It has submission times and durations of ops. Bars follow one another, and none starts before its "
        "op was submitted.");
  } else if (is_gpu) {
    timeline_.notes.emplace_back(
        "A bar reaches from the end of the previous op to its own end, so it includes gaps between kernels.");
  }
}

/// Ranges above devices, devices above hosts.
void TimelineBuilder::order_lanes() {
  std::vector<std::size_t> order(timeline_.lanes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t lane) { return place_of(timeline_.lanes[lane]); });
  std::vector<TimelineLane> lanes;
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    lanes.push_back(timeline_.lanes[order[i]]);
  }
  timeline_.lanes = std::move(lanes);
  for (Draft& draft : drafts_) draft.event.lane = place[draft.event.lane];
}

/// Time 0 is the start of the first event.
void TimelineBuilder::set_origin() {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const Draft& draft : drafts_) origin = std::min(origin, draft.event.start_ns);
  timeline_.origin_ns = origin;
  for (Draft& draft : drafts_) {
    draft.event.start_ns -= origin;
    draft.event.end_ns -= origin;
  }
  for (TimelineStep& step : timeline_.steps) {
    step.start_ns -= origin;
    step.end_ns -= origin;
  }
}

void TimelineBuilder::finish_events() {
  std::ranges::stable_sort(
      drafts_, {}, [](const Draft& draft) { return std::pair(draft.event.start_ns, -draft.event.end_ns); });
  std::map<std::int64_t, std::size_t> calls;  // by correlation
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    const Draft& draft = drafts_[i];
    if (draft.correlation && timeline_.lanes[draft.event.lane].kind == "host")
      calls.try_emplace(*draft.correlation, i);
  }
  timeline_.events.reserve(drafts_.size());
  for (const Draft& draft : drafts_) {
    TimelineEvent& event = timeline_.events.emplace_back(draft.event);
    if (!draft.correlation || timeline_.lanes[event.lane].kind == "host") continue;
    const auto call = calls.find(*draft.correlation);
    if (call != calls.end()) event.cause = call->second;
  }
}

Timeline TimelineBuilder::build() && {
  if (!run_.activities.empty()) {
    take_activities();
  } else if (!run_.events.empty()) {
    take_ops();
  }
  if (drafts_.empty()) return {};
  if (const std::string note = run_.text(record::kTimelineNote); !note.empty())
    timeline_.notes.push_back(note);
  add_ranges();
  add_idle();
  order_lanes();
  set_origin();
  finish_events();
  add_memory();
  add_gauges();
  return std::move(timeline_);
}

Timeline timeline_of(const RunData& run, std::size_t most_events) {
  return TimelineBuilder(run, most_events).build();
}

}  // namespace rooflm::report
