// What was in use while events of a timeline ran: memory, power, clocks.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "report/page/timeline_builder.h"

namespace rooflm::report {
namespace {

constexpr std::size_t kMostPoints = 50'000;

/// Whether differences with other such times are 64-bit numbers.
bool is_moment(std::int64_t time_ns) { return std::abs(time_ns / 4) < std::int64_t{1} << 58U; }

/// At most about kMostPoints, of each stretch the highest and the last.
void thin(TimelineSeries& series) {
  const std::size_t width = series.value.size() * 2 / kMostPoints + 1;
  if (width <= 2) return;
  TimelineSeries thinned{.name = series.name, .device = series.device, .unit = series.unit};
  for (std::size_t from = 0; from < series.value.size(); from += width) {
    const std::size_t to = std::min(from + width, series.value.size());
    const auto first = series.value.begin();
    const auto highest = static_cast<std::size_t>(
        std::max_element(first + static_cast<std::ptrdiff_t>(from), first + static_cast<std::ptrdiff_t>(to)) -
        first);
    const auto keep = [&](std::size_t i) {
      thinned.time_ns.push_back(series.time_ns[i]);
      thinned.value.push_back(series.value[i]);
    };
    if (highest != to - 1) keep(highest);
    keep(to - 1);
  }
  series = std::move(thinned);
}

std::map<std::int64_t, TimelineBuilder::OpMemory> memory_of_ops(
    const std::vector<record::MemoryEvent>& events) {
  std::map<std::int64_t, TimelineBuilder::OpMemory> of_op;
  for (const record::MemoryEvent& event : events) {
    TimelineBuilder::OpMemory& memory = of_op[event.op.value_or(-1)];
    memory.most_bytes = std::max(memory.most_bytes, event.live_bytes);
    memory.last_bytes = event.live_bytes;
  }
  return of_op;
}

}  // namespace

/// What the program took and gave back in a step while that was traced, when it did, on top of what persists.
TimelineBuilder::Points TimelineBuilder::allocations_of(std::size_t step, double persistent) const {
  std::vector<const TimelineEvent*> events;
  for (const TimelineEvent& event : timeline_.events) {
    if (event.step == step && timeline_.names[event.name].kind == "memory") events.push_back(&event);
  }
  if (events.empty()) return {};
  std::ranges::stable_sort(events, {}, &TimelineEvent::start_ns);
  Points points{{std::min(timeline_.steps[step].start_ns, events.front()->start_ns), persistent}};
  for (const TimelineEvent* event : events) {
    points.emplace_back(event->start_ns, points.back().second + static_cast<double>(event->bytes));
  }
  return points;
}

/// Memory was followed op by op in one step, which every step repeats: what an op allocates counts from the
/// start of its first kernel, what it frees until the end of its last.
TimelineBuilder::Points TimelineBuilder::planned_memory_of(
    std::size_t step, const std::map<std::int64_t, OpMemory>& of_op) const {
  std::map<std::int64_t, Span> spans;  // of the ops of the step, in program order
  for (const TimelineEvent& event : timeline_.events) {
    if (event.step == step && !lane_of_op(event).empty())
      spans[*event.op].include(event.start_ns, event.end_ns);
  }
  Points points;
  std::int64_t now_ns = timeline_.steps[step].start_ns;
  if (const auto before = of_op.find(-1); before != of_op.end()) {
    points.emplace_back(now_ns, static_cast<double>(before->second.last_bytes));
  }
  for (const auto& [op, memory] : of_op) {
    const auto span = spans.find(op);
    if (span == spans.end()) continue;
    // Bytes are known in the order of the program: an op that ran beside later ones moves no point back.
    now_ns = std::max(now_ns, span->second.start_ns);
    points.emplace_back(now_ns, static_cast<double>(memory.most_bytes));
    now_ns = std::max(now_ns, span->second.end_ns);
    points.emplace_back(now_ns, static_cast<double>(memory.last_bytes));
  }
  return points;
}

void TimelineBuilder::add_memory_of_steps() {
  const std::map<std::int64_t, OpMemory> of_op = memory_of_ops(run_.memory_events);
  const auto before = of_op.find(-1);
  const double persistent = before == of_op.end() ? 0 : static_cast<double>(before->second.last_bytes);
  TimelineSeries series{.name = "memory", .unit = "byte"};
  for (std::size_t step = 0; step < timeline_.steps.size(); ++step) {
    Points points = allocations_of(step, persistent);
    if (points.empty()) points = planned_memory_of(step, of_op);
    for (const auto& [time_ns, value] : points) {
      series.time_ns.push_back(time_ns);
      series.value.push_back(value);
    }
  }
  if (series.value.size() > timeline_.steps.size()) timeline_.series.push_back(std::move(series));
}

void TimelineBuilder::add_memory() {
  const bool is_timed =
      std::ranges::any_of(run_.memory_events, [](const auto& event) { return event.time_ns != 0; });
  if (!is_timed) {
    add_memory_of_steps();
    return;
  }
  std::map<std::string, TimelineSeries> of_device;
  for (const record::MemoryEvent& event : run_.memory_events) {
    if (!is_moment(event.time_ns)) continue;
    TimelineSeries& series = of_device[event.device];
    series.time_ns.push_back(event.time_ns - timeline_.origin_ns);
    series.value.push_back(static_cast<double>(event.live_bytes));
  }
  for (auto& [device, series] : of_device) {
    series.name = "memory";
    series.device = device;
    series.unit = "byte";
    thin(series);
    timeline_.series.push_back(std::move(series));
  }
}

/// One series per device and gauge, of the moments of the timeline and the last one before it. Times of ops
/// alone are of another clock than those of gauges.
void TimelineBuilder::add_gauges() {
  if (timeline_.source != "activities") return;
  std::int64_t end_ns = 0;
  for (const TimelineEvent& event : timeline_.events) end_ns = std::max(end_ns, event.end_ns);
  std::map<std::pair<std::string, std::string>, TimelineSeries> all;
  for (const record::Gauge& gauge : run_.gauges) {
    if (!is_moment(gauge.time_ns) || !std::isfinite(gauge.value)) continue;
    const std::int64_t time_ns = gauge.time_ns - timeline_.origin_ns;
    if (time_ns > end_ns) continue;
    TimelineSeries& series = all[{gauge.device, gauge.name}];
    series.name = gauge.name;
    series.device = gauge.device;
    series.unit = gauge.unit;
    if (time_ns <= 0) {
      series.time_ns.clear();
      series.value.clear();
    }
    series.time_ns.push_back(std::max<std::int64_t>(0, time_ns));
    series.value.push_back(gauge.value);
  }
  for (auto& [key, series] : all) {
    thin(series);
    timeline_.series.push_back(std::move(series));
  }
}

}  // namespace rooflm::report
