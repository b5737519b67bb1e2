// Times that cannot be true: of another clock, or ends that come too late.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/statistics.h"
#include "foreign/foreign_run.h"

namespace rooflm::foreign {
namespace {

/// Nanoseconds since 1970 have 61 bits now; sums stay within 64.
constexpr std::int64_t kMostEpoch = std::int64_t{1} << 62U;
/// What records show: 36 years.
constexpr std::int64_t kMostSpan = std::int64_t{1} << 60U;
constexpr std::int64_t kClockSecond = 1'000'000'000;
/// A clock whose first event is later than a day began elsewhere: that of torch.profiler, with a quarter of a
/// year.
constexpr std::int64_t kLateStart = 86'400 * kClockSecond;
/// What is further from the others than 100 days is of another clock, whatever it is.
constexpr std::int64_t kFar = 100 * kLateStart;

/// Events with no pause of a day between them.
struct ClockGroup {
  std::int64_t first_ns = 0, last_ns = 0;
  std::size_t pairs = 0;  ///< kernels and copies whose call is in the group, too
  std::int64_t device_ns = 0;
  std::size_t events = 0;
  [[nodiscard]] auto weight() const { return std::tuple(pairs, device_ns, events); }
};

std::vector<ClockGroup> groups_of(std::vector<std::int64_t> times) {
  std::ranges::sort(times);
  std::vector<ClockGroup> groups;
  for (const std::int64_t time : times) {
    if (groups.empty() || time - groups.back().last_ns > kLateStart) groups.push_back({.first_ns = time});
    groups.back().last_ns = time;
    ++groups.back().events;
  }
  return groups;
}

std::unordered_map<std::int64_t, std::int64_t> begins_of_calls(ForeignRun& run) {
  std::unordered_map<std::int64_t, std::int64_t> calls;  // by correlation
  for (const record::Activity& activity : run.activities()) {
    if (activity.correlation && run.name_of(activity).kind == "api")
      calls.try_emplace(*activity.correlation, activity.start_ns);
  }
  return calls;
}

}  // namespace

/// Keeps the events of one clock: those among which most kernels have their call, else those with most time
/// on a device, else most of them. Other groups stay where they have calls with their kernels, too: a program
/// may pause for days. What begins long before its call is of another clock, unless most do.
void ForeignRun::leave_out_other_clocks() {
  std::vector<std::int64_t> times;
  for (const record::Activity& activity : activities_) times.push_back(activity.start_ns);
  for (const record::MemoryEvent& event : memory_) times.push_back(event.time_ns);
  std::vector<ClockGroup> groups = groups_of(std::move(times));
  const auto group_of = [&](std::int64_t time) -> ClockGroup& {
    return *std::prev(std::ranges::upper_bound(groups, time, {}, &ClockGroup::first_ns));
  };
  const auto calls = begins_of_calls(*this);
  const auto call_of = [&](const record::Activity& activity) {
    return activity.correlation && is_device_work(activity) ? calls.find(*activity.correlation) : calls.end();
  };
  std::size_t before = 0;
  std::size_t called = 0;
  const auto is_before_its_call = [&](const record::Activity& activity) {
    const auto call = call_of(activity);
    return call != calls.end() && activity.start_ns < call->second - kClockSecond;
  };
  if (groups.size() > 1) {
    for (const record::Activity& activity : activities_) {
      if (!is_device_work(activity)) continue;
      ClockGroup& group = group_of(activity.start_ns);
      group.device_ns += std::min(activity.end_ns - activity.start_ns, kLateStart);
      const auto call = call_of(activity);
      if (call != calls.end() && &group_of(call->second) == &group) ++group.pairs;
    }
    const ClockGroup main = *std::ranges::max_element(groups, {}, &ClockGroup::weight);
    const auto is_other = [&](std::int64_t time) {
      const ClockGroup& group = group_of(time);
      const bool is_far = group.first_ns > main.last_ns + kFar || group.last_ns < main.first_ns - kFar;
      return group.first_ns != main.first_ns && (is_far || (main.pairs > 0 && group.pairs == 0));
    };
    const std::size_t left_out =
        std::erase_if(activities_, [&](const auto& one) { return is_other(one.start_ns); }) +
        std::erase_if(memory_, [&](const auto& one) { return is_other(one.time_ns); });
    if (left_out > 0) {
      count("events are on another clock, more than a day from the others, and were left out", left_out);
    }
  }
  for (const record::Activity& activity : activities_) {
    if (call_of(activity) != calls.end()) ++called;
    if (is_before_its_call(activity)) ++before;
  }
  if (before == 0) return;
  if (2 * before > called) {
    count("kernels and copies begin more than a second before their calls: the device has another clock",
          before);
    return;
  }
  std::erase_if(activities_, is_before_its_call);
  count("kernels and copies begin more than a second before their calls and were left out", before);
}

/// A stream runs one thing after the other. What ends a tenth of a second or more after the next one of its
/// stream began has an impossible end, unless that is usual there: streams of several processes may have one
/// number. Parts of one graph may run beside each other. An end beyond a day is none in any case.
void ForeignRun::leave_out_late_ends() {
  constexpr std::int64_t kLate = kClockSecond / 10;
  constexpr std::size_t kUsual = 100;  // one of so many
  std::map<std::int64_t, std::vector<std::size_t>> lanes;
  for (std::size_t i = 0; i < activities_.size(); ++i) {
    const record::Activity& activity = activities_[i];
    if (is_device_work(activity) && lane(activity.lane).kind == "device") lanes[activity.lane].push_back(i);
  }
  std::vector<bool> is_late(activities_.size());
  for (auto& [number, places] : lanes) {
    std::ranges::stable_sort(places, {}, [this](std::size_t i) { return activities_[i].start_ns; });
    std::vector<std::size_t> late;
    for (std::size_t n = 0; n + 1 < places.size(); ++n) {
      const record::Activity& one = activities_[places[n]];
      const auto next =
          std::find_if(places.begin() + static_cast<std::ptrdiff_t>(n) + 1, places.end(), [&](std::size_t i) {
            return !one.correlation || activities_[i].correlation != one.correlation ||
                   activities_[i].start_ns >= one.end_ns;
          });
      if (next != places.end() && one.end_ns - activities_[*next].start_ns >= kLate)
        late.push_back(places[n]);
    }
    if (late.size() > 1 + places.size() / kUsual) continue;
    for (const std::size_t i : late) is_late[i] = true;
  }
  std::size_t at = 0;
  const std::size_t left_out = std::erase_if(activities_, [&](const record::Activity& activity) {
    return is_late[at++] || activity.end_ns - activity.start_ns > kFar;
  });
  if (left_out > 0) {
    count("events end long after the next one on their stream began, which is impossible, and were left out",
          left_out);
  }
}

/// Records count from the start of what they hold.
void ForeignRun::begin_near_zero() {
  if (activities_.empty() && memory_.empty()) return;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const record::Activity& activity : activities_) first = std::min(first, activity.start_ns);
  for (const record::MemoryEvent& event : memory_) first = std::min(first, event.time_ns);
  if (first >= 0 && first < kLateStart) return;
  for (record::Activity& activity : activities_) {
    activity.start_ns -= first;
    activity.end_ns -= first;
  }
  for (record::MemoryEvent& event : memory_) event.time_ns -= first;
  for (record::Gauge& gauge : gauges_) gauge.time_ns -= first;
  epoch_utc_ns = std::clamp(epoch_utc_ns, -kMostSpan, kMostEpoch) + first;
  clock_ns = std::clamp(clock_ns, -kMostSpan, kMostEpoch) + first;
}

}  // namespace rooflm::foreign
