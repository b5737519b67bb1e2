// The steps of somebody's training loop, found among the ranges of a trace.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/foreign_run.h"
#include "foreign/repeats.h"
#include "inject/stream_format.h"

namespace rooflm::foreign {
namespace {

static_assert(std::string_view(record::kTimedStep) == inject::kTimedStep, "records keep the name of streams");

constexpr std::string_view kStep = "step";  // what records call it
constexpr const char* kWithoutDuration = "steps without a duration were left out";
constexpr std::string_view kHostStep = "step, as the host saw it";
/// Ranges that are steps by their name, the surest first.
constexpr std::array<std::string_view, 7> kStepNames = {
    "profilerstep", "step", "train_step", "training_step", "training step", "iteration", "iter"};
/// Fewer executions of one range are no loop.
constexpr std::size_t kLeastRepeats = 3;

/// "ProfilerStep#12" is "profilerstep" and 12.
struct StepName {
  std::string base{};
  std::optional<std::int64_t> number{};
};

StepName step_name(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(text[end - 1])) != 0) --end;
  StepName name;
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text.data() + end, text.data() + text.size(), number);
  if (end < text.size() && parsed.ec == std::errc()) name.number = number;
  while (end > 0 && std::string_view("#_: ").find(text[end - 1]) != std::string_view::npos) --end;
  for (const char c : text.substr(0, end)) {
    name.base += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

/// Executions of one range on one thread, in their order.
struct Loop {
  std::vector<std::size_t> ranges;  ///< activities
  std::size_t rank = kStepNames.size();
  std::int64_t total_ns = 0;
};

struct FoundStep {
  std::int64_t number = 0, start_ns = 0, end_ns = 0;
  std::size_t range = 0;
};

/// The best loop among the ranges, empty where there is none.
Loop find_loop(ForeignRun& run) {
  std::map<std::pair<std::int64_t, std::string>, Loop> loops;
  std::map<std::int64_t, std::vector<std::size_t>> of_lane;
  const auto& activities = run.activities();
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const bool is_range = run.name_of(activities[i]).kind == "range";
    if (is_range && run.lane(activities[i].lane).kind == "host") of_lane[activities[i].lane].push_back(i);
  }
  for (auto& [lane, ranges] : of_lane) {
    std::ranges::stable_sort(ranges, [&](std::size_t a, std::size_t b) {
      return activities[a].start_ns != activities[b].start_ns
                 ? activities[a].start_ns < activities[b].start_ns
                 : activities[a].end_ns > activities[b].end_ns;
    });
    std::int64_t outer_end = activities[ranges.front()].start_ns;
    for (const std::size_t i : ranges) {
      const bool is_outermost = activities[i].start_ns >= outer_end;
      if (is_outermost) outer_end = activities[i].end_ns;
      const StepName name = step_name(run.name_of(activities[i]).text);
      const auto rank =
          static_cast<std::size_t>(std::ranges::find(kStepNames, name.base) - kStepNames.begin());
      if (rank == kStepNames.size() && !is_outermost) continue;
      Loop& loop = loops[{lane, name.base}];
      loop.rank = rank;
      // One that overlaps the one before is no step after it.
      if (!loop.ranges.empty() && activities[loop.ranges.back()].end_ns > activities[i].start_ns) continue;
      loop.ranges.push_back(i);
      loop.total_ns += activities[i].end_ns - activities[i].start_ns;
    }
  }
  Loop best;
  for (auto& [key, loop] : loops) {
    const bool is_named = loop.rank < kStepNames.size();
    const std::int64_t span =
        activities[loop.ranges.back()].end_ns - activities[loop.ranges.front()].start_ns;
    if (!is_named && (loop.ranges.size() < kLeastRepeats || loop.total_ns < span / 2)) continue;
    const bool is_better = best.ranges.empty() || loop.rank < best.rank ||
                           (loop.rank == best.rank && loop.total_ns > best.total_ns);
    if (is_better) best = std::move(loop);
  }
  return best;
}

/// Where the recorder marked steps itself, other ranges of that name are none.
std::vector<FoundStep> numbered_steps(ForeignRun& run, const Loop& loop) {
  std::vector<FoundStep> steps;
  std::set<std::int64_t> numbers;
  const bool has_marked =
      std::ranges::any_of(loop.ranges, [&](std::size_t i) { return run.activities()[i].step.has_value(); });
  for (const std::size_t i : loop.ranges) {
    const record::Activity& range = run.activities()[i];
    if (has_marked && !range.step) continue;
    const auto number = step_name(run.name_of(range).text).number;
    if (number) numbers.insert(*number);
    if (!number && range.step) numbers.insert(*range.step);
    steps.push_back({number ? *number : range.step.value_or(-1), range.start_ns, range.end_ns, i});
  }
  if (numbers.size() < steps.size()) {
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i].number = static_cast<std::int64_t>(i);
  }
  return steps;
}

/// Where steps that repeat themselves are best cut: where the device waits longest, the host does not run
/// ahead.
std::size_t best_cut(const std::vector<record::Activity>& activities, const std::vector<std::size_t>& kernels,
                     const Repeats& repeats) {
  std::size_t best = 0;
  std::int64_t longest_ns = -1;
  for (std::size_t offset = 0; offset < repeats.length; ++offset) {
    std::int64_t sum_ns = 0;
    for (std::size_t i = repeats.begin + offset; i < repeats.begin + repeats.count * repeats.length;
         i += repeats.length) {
      if (i == 0) continue;
      sum_ns +=
          std::max<std::int64_t>(0, activities[kernels[i]].start_ns - activities[kernels[i - 1]].end_ns);
    }
    if (sum_ns > longest_ns) {
      longest_ns = sum_ns;
      best = offset;
    }
  }
  return best;
}

/// The number of the node of a graph that a kernel is; -1 where it is none.
std::int64_t node_of(const record::Activity& kernel) {
  constexpr std::string_view kKey = R"("node":)";
  const std::size_t at = kernel.extra.find(kKey);
  return at == std::string::npos ? -1 : std::atoll(kernel.extra.c_str() + at + kKey.size());
}

/// By the moment of the call that asked for each kernel (of its own start where nobody saw it), those of one
/// call by their nodes: streams run beside each other in another order in each step.
void sort_as_asked(const std::vector<record::Activity>& activities,
                   const std::unordered_map<std::int64_t, std::size_t>& calls,
                   std::vector<std::size_t>& kernels) {
  struct Place {
    std::int64_t asked_ns = 0, node = 0, start_ns = 0;
    std::size_t kernel = 0;
  };
  std::vector<Place> places;
  places.reserve(kernels.size());
  for (const std::size_t kernel : kernels) {
    const record::Activity& activity = activities[kernel];
    const auto call = activity.correlation ? calls.find(*activity.correlation) : calls.end();
    places.push_back({.asked_ns = call == calls.end() ? activity.start_ns : activities[call->second].start_ns,
                      .node = node_of(activity),
                      .start_ns = activity.start_ns,
                      .kernel = kernel});
  }
  std::ranges::sort(places, {}, [](const Place& place) {
    return std::tuple(place.asked_ns, place.node, place.start_ns, place.kernel);
  });
  std::ranges::transform(places, kernels.begin(), &Place::kernel);
}

/// Adds ranges "iteration" for what the first device does again and again.
void add_repeats(ForeignRun& run) {
  const std::vector<record::Activity>& activities = run.activities();
  std::string device;
  std::vector<std::size_t> kernels;
  for (std::size_t i = 0; i < activities.size(); ++i) {
    if (run.name_of(activities[i]).kind != "kernel") continue;
    const std::string& own = run.lane(activities[i].lane).device;
    if (device.empty() || own < device) {
      device = own;
      kernels.clear();
    }
    if (own == device) kernels.push_back(i);
  }
  std::unordered_map<std::int64_t, std::size_t> calls;
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const bool is_call = run.name_of(activities[i]).kind == "api" && activities[i].correlation;
    if (is_call) calls.emplace(*activities[i].correlation, i);
  }
  sort_as_asked(activities, calls, kernels);
  std::vector<std::int64_t> names;
  for (const std::size_t i : kernels) names.push_back(activities[i].name);
  const auto repeats = find_repeats(names);
  if (!repeats) return;
  struct Begin {
    std::int64_t time_ns = 0, lane = 0;
  };
  std::vector<Begin> begins;
  const std::size_t cut = best_cut(activities, kernels, *repeats);
  for (std::size_t step = 0; step < repeats->count; ++step) {
    const record::Activity& first = activities[kernels[repeats->begin + step * repeats->length + cut]];
    const auto call = first.correlation ? calls.find(*first.correlation) : calls.end();
    if (call == calls.end()) return;  // nobody knows when it was asked for
    begins.push_back({activities[call->second].start_ns, activities[call->second].lane});
  }
  const std::int64_t name = run.name("range", "iteration");
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    run.add({.name = name,
             .lane = begins.front().lane,
             .start_ns = begins[i].time_ns,
             .end_ns = begins[i + 1].time_ns - 1});
  }
  if (begins.size() > 1) {
    run.say(fmt::format("steps are what repeats itself: {} kernels, {} times", repeats->length,
                        begins.size() - 1));
  }
}

}  // namespace

std::vector<record::Sample> take_timed_steps(ForeignRun& run) {
  std::vector<record::Sample> samples;
  for (record::Activity& activity : run.activities()) {
    const record::ActivityName& name = run.name_of(activity);
    if (name.kind != "range" || name.text != inject::kTimedStep || !activity.step) continue;
    if (activity.end_ns == activity.start_ns) {
      run.count(kWithoutDuration);
      activity.step.reset();
      continue;
    }
    samples.push_back({.step = *activity.step,
                       .phase = "step",
                       .seconds = static_cast<double>(activity.end_ns - activity.start_ns) * 1e-9,
                       .kind = "plain"});
    activity.step.reset();
  }
  return samples;
}

std::size_t leave_out_steps_ahead(ForeignRun& run, std::vector<record::Sample>& timed) {
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> kernels;  // by step
  for (const record::Activity& activity : run.activities()) {
    if (activity.step && run.name_of(activity).kind == "kernel")
      kernels[*activity.step].emplace_back(activity.start_ns, activity.end_ns);
  }
  std::optional<std::int64_t> least_ns;
  for (auto& [step, times] : kernels) {
    std::ranges::sort(times);
    std::int64_t busy_ns = 0;
    std::int64_t until = std::numeric_limits<std::int64_t>::min();
    for (const auto& [start, end] : times) {
      busy_ns += std::max<std::int64_t>(0, end - std::max(start, until));
      until = std::max(until, end);
    }
    least_ns = std::min(least_ns.value_or(busy_ns), busy_ns);
  }
  if (!least_ns) return 0;
  // Clocks differ between steps, and recording may make kernels longer: not by that much.
  constexpr double kShare = 0.5;
  return std::erase_if(timed, [least_s = kShare * static_cast<double>(*least_ns) * 1e-9](const auto& sample) {
    return sample.seconds < least_s;
  });
}

std::vector<record::Sample> find_steps(ForeignRun& run) {
  std::vector<record::Activity>& activities = run.activities();
  std::vector<FoundStep> steps = numbered_steps(run, find_loop(run));
  if (steps.empty() && run.may_repeat) {
    add_repeats(run);
    steps = numbered_steps(run, find_loop(run));
  }
  if (steps.empty()) {
    for (record::Activity& activity : activities) activity.step.reset();
    return {};
  }
  const auto step_at = [&](std::int64_t time_ns) -> FoundStep* {
    auto next = std::ranges::upper_bound(steps, time_ns, {}, &FoundStep::start_ns);
    if (next == steps.begin() || (--next)->end_ns < time_ns) return nullptr;
    return &*next;
  };
  std::unordered_map<std::int64_t, std::int64_t> calls;  // when each began
  for (const record::Activity& activity : activities) {
    if (run.name_of(activity).kind == "api" && activity.correlation) {
      calls.emplace(*activity.correlation, activity.start_ns);
    }
  }
  std::map<std::int64_t, FoundStep*> by_number;
  for (FoundStep& step : steps) by_number[step.number] = &step;
  std::vector<std::pair<std::size_t, FoundStep*>> work;
  for (std::size_t i = 0; i < activities.size(); ++i) {
    record::Activity& activity = activities[i];
    const bool is_device = run.lane(activity.lane).kind == "device";
    const auto call = activity.correlation && is_device ? calls.find(*activity.correlation) : calls.end();
    const auto said = activity.step ? by_number.find(*activity.step) : by_number.end();
    FoundStep* step = said != by_number.end()
                          ? said->second
                          : step_at(call != calls.end() ? call->second : activity.start_ns);
    activity.step.reset();
    // Of the host only the step itself: what it did belongs to no step alone.
    if (is_device && step != nullptr && run.name_of(activity).kind != "range") work.emplace_back(i, step);
  }
  std::map<FoundStep*, std::pair<std::int64_t, std::int64_t>> spans;  // of the work of each
  for (const auto& [i, step] : work) {
    activities[i].step = step->number;
    auto& [first, last] = spans.try_emplace(step, activities[i].start_ns, activities[i].end_ns).first->second;
    first = std::min(first, activities[i].start_ns);
    last = std::max(last, activities[i].end_ns);
  }
  std::vector<record::Sample> samples;
  const std::int64_t name = run.name("range", kStep);
  std::set<const FoundStep*> empty;
  std::int64_t done_ns = steps.front().start_ns;  // the device, with the step before
  for (FoundStep& step : steps) {
    const record::Activity range = activities[step.range];
    if (done_ns < step.end_ns) step.start_ns = std::max(step.start_ns, done_ns);
    const auto span = spans.find(&step);
    if (span != spans.end()) {
      const auto [first, last] = span->second;
      step.end_ns = std::max(step.end_ns, last);
      step.start_ns = std::min(std::max(step.start_ns, done_ns), first);
    }
    if (step.end_ns <= step.start_ns) {
      run.count(kWithoutDuration);
      empty.insert(&step);
      continue;
    }
    done_ns = std::max(done_ns, step.end_ns);
    // A host that runs ahead begins and ends its range before the device does: then the step is a range of
    // its own, from when the device was done with the one before until it is done with this one.
    if (step.start_ns == range.start_ns && step.end_ns == range.end_ns) {
      activities[step.range].name = name;
      activities[step.range].step = step.number;
    } else {
      // What records call a step is on the device's clock; the program's own range keeps another name.
      if (run.name_of(range).text == kStep) activities[step.range].name = run.name("range", kHostStep);
      run.add({.name = name,
               .lane = range.lane,
               .start_ns = step.start_ns,
               .end_ns = step.end_ns,
               .step = step.number});
    }
    samples.push_back({.step = step.number,
                       .phase = "step",
                       .seconds = static_cast<double>(step.end_ns - step.start_ns) * 1e-9,
                       .kind = "traced"});
  }
  for (const auto& [i, step] : work) {
    if (empty.contains(step)) activities[i].step.reset();
  }
  return samples;
}

}  // namespace rooflm::foreign
