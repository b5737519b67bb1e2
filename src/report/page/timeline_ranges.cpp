// The ranges of a timeline: steps, and in them phases, layers and blocks of the ops that ran; and where no
// kernel did.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/scope.h"
#include "report/model/traced_kernels.h"
#include "report/page/timeline_builder.h"

namespace rooflm::report {
namespace {

/// A range that still goes on.
struct Open {
  const char* kind = "";
  std::string text, of_class;
  std::int64_t start_ns = 0, end_ns = 0;
};

/// Phase, layer and block of an op, outermost first.
std::vector<Open> path_of(const record::Op& op, const TimelineEvent& event) {
  const core::Scope scope(op.scope);
  std::vector<Open> path;
  const auto add = [&](const char* kind, std::string text, std::string of_class) {
    if (text.empty()) return;
    path.push_back({.kind = kind,
                    .text = std::move(text),
                    .of_class = std::move(of_class),
                    .start_ns = event.start_ns,
                    .end_ns = event.end_ns});
  };
  add("phase", op.phase, op.phase);
  if (scope.layer()) add("layer", fmt::format("h.{}", *scope.layer()), op.phase);
  add("block", std::string(scope.block()), std::string(scope.block()));
  return path;
}

}  // namespace

/// The lane of the program that the op of an event is on; "" for what is no op or keeps no device busy.
std::string TimelineBuilder::lane_of_op(const TimelineEvent& event) const {
  if (!event.step || !is_work(timeline_.names[event.name].kind)) return "";
  const record::Op* op = op_of(event.op);
  return op == nullptr ? "" : op->lane;
}

void TimelineBuilder::add_range(std::size_t lane, std::size_t step, const char* kind, const std::string& text,
                                const std::string& of_class, std::int64_t start_ns, std::int64_t end_ns) {
  TimelineEvent event;
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  event.lane = lane;
  event.step = step;
  event.name = name_of(kind, text);
  event.event_class = class_of(of_class);
  drafts_.push_back({event, std::nullopt});
}

/// A range reaches from the start of its first kernel to the end of its last, or to the start of the range
/// after it where kernels overlap.
void TimelineBuilder::add_ranges_of(std::size_t step, const std::string& op_lane, std::size_t lane) {
  std::vector<TimelineEvent> events;
  for (const Draft& draft : drafts_) {
    if (draft.event.step == step && lane_of_op(draft.event) == op_lane) events.push_back(draft.event);
  }
  std::ranges::stable_sort(events, {}, &TimelineEvent::start_ns);
  std::vector<Open> open;
  // Outermost first: where a range holds one event, all around it begin and end with it.
  const auto close = [&](std::size_t depth, std::int64_t next_ns) {
    for (std::size_t i = depth; i < open.size(); ++i) {
      const Open& range = open[i];
      const std::int64_t end_ns = std::max(range.start_ns, std::min(range.end_ns, next_ns));
      add_range(lane, step, range.kind, range.text, range.of_class, range.start_ns, end_ns);
    }
    open.resize(std::min(open.size(), depth));
  };
  for (const TimelineEvent& event : events) {
    const std::vector<Open> path = path_of(*op_of(event.op), event);
    std::size_t shared = 0;
    while (shared < std::min(path.size(), open.size()) && path[shared].text == open[shared].text &&
           std::string_view(path[shared].kind) == open[shared].kind) {
      open[shared].end_ns = std::max(open[shared].end_ns, event.end_ns);
      ++shared;
    }
    close(shared, event.start_ns);
    open.insert(open.end(), path.begin() + static_cast<std::ptrdiff_t>(shared), path.end());
  }
  close(0, events.empty() ? 0 : timeline_.steps[step].end_ns);
}

void TimelineBuilder::add_ranges() {
  if (timeline_.steps.empty()) return;
  const std::size_t events = drafts_.size();
  std::set<std::string> op_lanes;
  for (std::size_t i = 0; i < events; ++i) op_lanes.insert(lane_of_op(drafts_[i].event));
  op_lanes.erase("");
  const std::size_t main_lane = lane_of({.name = "steps, phases, blocks", .kind = "range"});
  for (std::size_t step = 0; step < timeline_.steps.size(); ++step) {
    const TimelineStep& whole = timeline_.steps[step];
    add_range(main_lane, step, "step", fmt::format("step {}", whole.step), "step", whole.start_ns,
              whole.end_ns);
    for (const std::string& op_lane : op_lanes) {
      const std::size_t lane =
          op_lane == "compute" ? main_lane : lane_of({.name = "blocks, " + op_lane, .kind = "range"});
      add_ranges_of(step, op_lane, lane);
    }
  }
}

/// Stretches without kernels, by their cause, of the steps that are shown.
void TimelineBuilder::add_idle() {
  std::string device;
  for (const TimelineLane& lane : timeline_.lanes) {
    if (lane.kind == "device" && device.empty()) device = lane.device;
  }
  for (const Idle& idle : traced_kernels(run_).times().idle) {
    const auto step = step_place(idle.step);
    if (!step && (idle.step != kWholeRecording || !timeline_.steps.empty())) continue;
    const std::string cause(report::name_of(idle.cause));
    TimelineEvent event;
    event.start_ns = idle.start_ns;
    event.end_ns = idle.end_ns;
    event.lane = lane_of({.name = "no kernel, why", .kind = "idle", .device = device});
    event.name = name_of("idle", cause);
    event.event_class = class_of("idle: " + cause);
    event.step = step;
    drafts_.push_back({event, std::nullopt});
  }
}

}  // namespace rooflm::report
