// Where the host was in its program, sample by sample.
#include "report/model/host_stacks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "report/model/activity_names.h"

namespace rooflm::report {
namespace {

constexpr std::int64_t kFarAway = std::numeric_limits<std::int64_t>::max();

struct DeviceSpan {
  std::int64_t start_ns = kFarAway, end_ns = -kFarAway;
};

/// When the device had work: spans that do not overlap, in order.
std::vector<DeviceSpan> merged_spans(std::vector<DeviceSpan> spans) {
  std::ranges::sort(spans, {}, &DeviceSpan::start_ns);
  std::vector<DeviceSpan> all;
  for (const DeviceSpan& span : spans) {
    if (!all.empty() && span.start_ns <= all.back().end_ns) {
      all.back().end_ns = std::max(all.back().end_ns, span.end_ns);
    } else {
      all.push_back(span);
    }
  }
  return all;
}

struct KnownTimes {
  std::vector<DeviceSpan> covered;   ///< the device was busy, or nobody knows what it did (timed alone)
  std::set<std::int64_t> launching;  ///< lanes of threads that started work
  DeviceSpan steps;
  /// The same as `covered`, or one of these threads did not wait: whoever waited then waited for that one.
  std::vector<DeviceSpan> covered_or_run;
};

bool is_waiting(std::string_view extra) { return extra.find(R"("waiting":1)") != std::string_view::npos; }

/// The wrappers of the recorder call the program; everything else in it is its own work.
bool is_in_recorder(std::string_view stack) {
  const auto has = [&](std::string_view part) { return stack.find(part) != std::string_view::npos; };
  return has("(rooflm_allocator.py") || has("librooflm_inject.so") ||
         stack.substr(stack.rfind(';') + 1).find("(rooflm_") != std::string_view::npos;
}

/// When a thread did not wait, from its first sample to its last.
std::vector<DeviceSpan> times_between_waits(std::vector<const record::Activity*> samples) {
  std::ranges::sort(samples, {}, &record::Activity::start_ns);
  // Threads are looked at one after the other, and each wait is known from one look to another.
  constexpr std::int64_t kLookNs = 1'000'000;
  std::vector<DeviceSpan> times;
  std::int64_t end_ns = samples.empty() ? 0 : samples.front()->start_ns;
  for (const record::Activity* sample : samples) {
    if (!is_waiting(sample->extra) && sample != samples.back()) continue;
    if (sample->start_ns - kLookNs > end_ns) times.push_back({end_ns, sample->start_ns - kLookNs});
    end_ns = std::max(end_ns, sample->end_ns + kLookNs);
  }
  return times;
}

KnownTimes known_times(const RunData& run) {
  std::unordered_map<std::int64_t, const record::ActivityName*> names;
  for (const record::ActivityName& name : run.activity_names) names[name.name] = &name;
  KnownTimes known;
  std::set<std::int64_t> started;  // correlations of what ran on a device
  const auto kind_of = [&](const record::Activity& activity) {
    const auto name = names.find(activity.name);
    return name == names.end() ? "" : std::string_view(name->second->kind);
  };
  for (const record::Activity& activity : run.activities) {
    const std::string_view kind = kind_of(activity);
    if (is_device_kind(kind)) {
      known.covered.push_back({activity.start_ns, activity.end_ns});
      if (activity.correlation) started.insert(*activity.correlation);
    }
    const bool is_timed = kind == "range" && names[activity.name]->text == record::kTimedStep;
    if (is_timed) known.covered.push_back({activity.start_ns, activity.end_ns});
    if (!activity.step && !is_timed) continue;
    known.steps.start_ns = std::min(known.steps.start_ns, activity.start_ns);
    known.steps.end_ns = std::max(known.steps.end_ns, activity.end_ns);
  }
  for (const record::Activity& activity : run.activities) {
    if (kind_of(activity) == "api" && activity.correlation && started.contains(*activity.correlation))
      known.launching.insert(activity.lane);
  }
  if (known.steps.start_ns > known.steps.end_ns) known.steps = {-kFarAway, kFarAway};
  known.covered_or_run = known.covered;
  std::map<std::int64_t, std::vector<const record::Activity*>> samples;  // by lane
  for (const record::Activity& sample : run.stack_samples) {
    if (known.launching.contains(sample.lane)) samples[sample.lane].push_back(&sample);
  }
  for (auto& [lane, of_lane] : samples) {
    for (const DeviceSpan& one : times_between_waits(std::move(of_lane))) known.covered_or_run.push_back(one);
  }
  known.covered = merged_spans(std::move(known.covered));
  known.covered_or_run = merged_spans(std::move(known.covered_or_run));
  return known;
}

bool is_within(const std::vector<DeviceSpan>& spans, std::int64_t time_ns) {
  const auto after = std::ranges::upper_bound(spans, time_ns, {}, &DeviceSpan::start_ns);
  return after != spans.begin() && std::prev(after)->end_ns > time_ns;
}

/// How much of a span lies within others.
std::int64_t covered_ns(const std::vector<DeviceSpan>& spans, const DeviceSpan& one) {
  auto next = std::ranges::upper_bound(spans, one.start_ns, {}, &DeviceSpan::start_ns);
  if (next != spans.begin()) --next;
  std::int64_t covered = 0;
  for (; next != spans.end() && next->start_ns < one.end_ns; ++next) {
    covered += std::max<std::int64_t>(
        0, std::min(next->end_ns, one.end_ns) - std::max(next->start_ns, one.start_ns));
  }
  return covered;
}

/// How many periods of the rate that was asked for a sample stands for: its `{"periods":4}`, else one.
std::size_t periods_of(std::string_view extra) {
  constexpr std::string_view kKey = R"("periods":)";
  const std::size_t at = extra.find(kKey);
  std::size_t periods = 1;
  if (at != std::string_view::npos)
    std::from_chars(extra.data() + at + kKey.size(), extra.data() + extra.size(), periods);
  constexpr std::size_t kMost = 1U << 20U;  // as of streams
  return std::clamp<std::size_t>(periods, 1, kMost);
}

/// What a sample counts for within the steps, and of it while nothing ran on the device.
struct Weight {
  std::size_t periods = 0, idle = 0;
};

Weight weight_of(const record::Activity& sample, const KnownTimes& known) {
  const std::size_t periods = periods_of(sample.extra);
  const DeviceSpan within{.start_ns = std::max(sample.start_ns, known.steps.start_ns),
                          .end_ns = std::min(sample.end_ns, known.steps.end_ns)};
  if (within.start_ns > within.end_ns) return {};
  const std::vector<DeviceSpan>& covered = is_waiting(sample.extra) ? known.covered_or_run : known.covered;
  if (sample.end_ns <= sample.start_ns) {
    return {.periods = periods, .idle = is_within(covered, sample.start_ns) ? 0 : periods};
  }
  const auto share_of = [&](std::int64_t ns) {
    const double share = static_cast<double>(ns) / static_cast<double>(sample.end_ns - sample.start_ns);
    return static_cast<std::size_t>(std::llround(share * static_cast<double>(periods)));
  };
  const std::int64_t ns = within.end_ns - within.start_ns;
  return {.periods = share_of(ns), .idle = share_of(ns - covered_ns(covered, within))};
}

}  // namespace

std::vector<std::string> frames_of(std::string_view text) {
  std::vector<std::string> frames;
  while (!text.empty()) {
    const auto end = std::min(text.find(';'), text.size());
    frames.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return frames;
}

HostStacks host_stacks(const RunData& run) {
  HostStacks found;
  if (run.stack_samples.empty()) return found;
  const KnownTimes known = known_times(run);
  std::map<std::pair<std::int64_t, bool>, HostStack> by_name;
  for (const record::Activity& sample : run.stack_samples) {
    const bool is_counted = known.launching.empty() || known.launching.contains(sample.lane);
    const Weight weight = is_counted ? weight_of(sample, known) : Weight();
    found.outside += periods_of(sample.extra) - std::min(periods_of(sample.extra), weight.periods);
    if (weight.periods == 0) continue;
    const bool waits = is_waiting(sample.extra);
    HostStack& stack = by_name[{sample.name, waits}];
    stack.is_waiting = waits;
    stack.samples += weight.periods;
    stack.idle += weight.idle;
    found.samples += weight.periods;
    found.idle += weight.idle;
  }
  for (const record::ActivityName& name : run.activity_names) {
    for (const bool waits : {false, true}) {
      const auto entry = by_name.find({name.name, waits});
      if (entry == by_name.end()) continue;
      entry->second.frames = frames_of(name.text);
      found.stacks.push_back(std::move(entry->second));
    }
  }
  std::ranges::stable_sort(found.stacks, std::greater<>(), &HostStack::samples);
  return found;
}

RecorderSamples::RecorderSamples(const RunData& run, const std::unordered_set<std::int64_t>& lanes) {
  std::unordered_map<std::int64_t, bool> stacks;  // by name
  for (const record::ActivityName& name : run.activity_names) {
    if (name.kind == "sample") stacks[name.name] = is_in_recorder(name.text);
  }
  for (const record::Activity& sample : run.stack_samples) {
    if (lanes.contains(sample.lane) && !is_waiting(sample.extra))
      samples_.emplace_back(sample.end_ns, stacks[sample.name]);
  }
  std::ranges::sort(samples_);
}

bool RecorderSamples::are_most(std::int64_t start_ns, std::int64_t end_ns) const {
  const auto from = std::ranges::lower_bound(samples_, std::pair(start_ns, false));
  const auto to = std::upper_bound(from, samples_.end(), std::pair(end_ns, true));
  return 2 * std::count_if(from, to, [](const auto& sample) { return sample.second; }) > to - from;
}

}  // namespace rooflm::report
