// Ranges of a host's threads that could be steps.
#include "foreign/step_ranges.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "core/printable.h"

namespace rooflm::foreign {
namespace {

/// Ranges that are steps by their name, the surest first.
constexpr std::array<std::string_view, 7> kStepNames = {
    "profilerstep", "step", "train_step", "training_step", "training step", "iteration", "iter"};
constexpr std::string_view kOptimizer = "Optimizer.step#";
/// Fewer executions of a range whose name says nothing are no loop.
constexpr std::size_t kLeastRepeats = 3;
/// Of these, those that take longest are looked at.
constexpr std::size_t kMostLoops = 8;

/// "ProfilerStep#12" is "ProfilerStep" and 12.
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
  name.base = text.substr(0, end);
  return name;
}

std::size_t rank_of(std::string base) {
  std::ranges::transform(base, base.begin(), [](unsigned char c) { return std::tolower(c); });
  return static_cast<std::size_t>(std::ranges::find(kStepNames, base) - kStepNames.begin());
}

/// Executions of one range on one thread, in their order.
struct Loop {
  std::size_t rank = kStepNames.size();
  std::int64_t total_ns = 0;
  std::vector<HostStep> steps;
};

using Loops = std::map<std::pair<std::int64_t, std::string>, Loop>;

/// Ranges of each host thread, the outer before the inner.
std::map<std::int64_t, std::vector<std::size_t>> ranges_by_lane(ForeignRun& run) {
  std::map<std::int64_t, std::vector<std::size_t>> of_lane;
  const auto& activities = run.activities();
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const bool is_range = run.name_of(activities[i]).kind == "range";
    if (is_range && run.lane(activities[i].lane).kind == "host") of_lane[activities[i].lane].push_back(i);
  }
  for (auto& [lane, ranges] : of_lane) {
    std::ranges::stable_sort(
        ranges, {}, [&](std::size_t i) { return std::pair(activities[i].start_ns, -activities[i].end_ns); });
  }
  return of_lane;
}

/// One number that stands twice is one step: exports of some tools have it as the host and as the device saw
/// it. The first is the host's. Where later ones overlap no other step, somebody counted anew.
void leave_out_second_ones(std::vector<HostStep>& steps) {
  std::set<std::int64_t> numbers;
  std::vector<HostStep> first, second;
  for (const HostStep& step : steps) (numbers.insert(step.number).second ? first : second).push_back(step);
  const auto overlaps = [&](const HostStep& one) {
    return std::ranges::any_of(first, [&](const HostStep& other) {
      return one.start_ns < other.end_ns && other.start_ns < one.end_ns;
    });
  };
  if (2 * static_cast<std::size_t>(std::ranges::count_if(second, overlaps)) >= second.size())
    steps = std::move(first);
}

/// What overlaps the step before by more than half is no step after it; by less, it begins at its end.
void leave_out_overlaps(std::vector<HostStep>& steps) {
  std::vector<HostStep> kept;
  for (HostStep step : steps) {
    if (!kept.empty()) {
      const HostStep& before = kept.back();
      const std::int64_t overlap = before.end_ns - step.start_ns;
      const std::int64_t shorter = std::min(before.end_ns - before.start_ns, step.end_ns - step.start_ns);
      if (overlap > 0 && 2 * overlap >= shorter) continue;
      step.start_ns = std::max(step.start_ns, before.end_ns);
    }
    kept.push_back(step);
  }
  steps = std::move(kept);
}

Loops loops_of(ForeignRun& run, const std::optional<std::regex>& pattern) {
  Loops loops;
  const auto& activities = run.activities();
  for (const auto& [lane, ranges] : ranges_by_lane(run)) {
    std::int64_t outer_end = activities[ranges.front()].start_ns;
    for (const std::size_t i : ranges) {
      const record::Activity& range = activities[i];
      const bool is_outermost = range.start_ns >= outer_end;
      if (is_outermost) outer_end = range.end_ns;
      const std::string& text = run.name_of(range).text;
      const StepName name = step_name(text);
      const std::size_t rank = rank_of(name.base);
      const bool is_taken = pattern
                                ? std::regex_search(text, *pattern)
                                : rank < kStepNames.size() || is_outermost || text.starts_with(kOptimizer);
      if (!is_taken) continue;
      if (range.end_ns == range.start_ns) {
        if (rank < kStepNames.size()) run.count(kStepsWithoutDuration);
        continue;
      }
      Loop& loop = loops[{lane, pattern ? "" : name.base}];
      loop.rank = rank;
      loop.total_ns += range.end_ns - range.start_ns;
      loop.steps.push_back({.number = name.number ? *name.number : range.step.value_or(-1),
                            .start_ns = range.start_ns,
                            .end_ns = range.end_ns,
                            .lane = lane,
                            .is_marked = range.step.has_value(),
                            .is_exact = range.step.has_value() && name.number == range.step,
                            .range = i});
    }
  }
  return loops;
}

/// A step of an optimizer ends a step of the program, which began where the one before ended, or with the
/// first work of the device.
void end_at_each(std::vector<HostStep>& steps, std::int64_t first_ns) {
  std::int64_t start_ns = std::min(first_ns, steps.front().start_ns);
  for (HostStep& step : steps) {
    step.start_ns = start_ns;
    start_ns = step.end_ns;
    step.range.reset();
  }
}

Candidate candidate_of(const std::string& base, Loop loop) {
  Candidate made;
  // Where the recorder marked steps itself, other ranges of that name are none.
  const bool has_marks =
      loop.rank < kStepNames.size() && std::ranges::any_of(loop.steps, &HostStep::is_marked);
  if (has_marks) std::erase_if(loop.steps, [](const HostStep& step) { return !step.is_marked; });
  if (std::ranges::all_of(loop.steps, [](const HostStep& step) { return step.number >= 0; }))
    leave_out_second_ones(loop.steps);
  leave_out_overlaps(loop.steps);
  std::set<std::int64_t> numbers;
  for (const HostStep& step : loop.steps) numbers.insert(step.number);
  if (numbers.size() < loop.steps.size() || *numbers.begin() < 0) {
    for (std::size_t i = 0; i < loop.steps.size(); ++i) loop.steps[i].number = static_cast<std::int64_t>(i);
  }
  made.is_named = loop.rank < kStepNames.size();
  constexpr double kLessSure = 0.01;
  constexpr double kUnnamed = 0.7;
  made.weight = made.is_named ? 1 - kLessSure * static_cast<double>(loop.rank) : kUnnamed;
  const bool is_of_recorder = has_marks && !loop.steps.empty() && !loop.steps.front().is_exact;
  made.what = is_of_recorder ? "optimizer steps" : "ranges " + core::printable(base, 80);
  made.steps = std::move(loop.steps);
  return made;
}

}  // namespace

std::vector<Candidate> range_candidates(ForeignRun& run, const std::vector<Launched>& work) {
  using Kind = StepsBy::Kind;
  const Kind kind = run.steps_by.kind;
  std::optional<std::regex> pattern;
  if (kind == Kind::range) pattern.emplace(run.steps_by.pattern);
  std::vector<Candidate> named;
  std::vector<std::pair<std::int64_t, Candidate>> others;  // by time
  for (auto& [key, loop] : loops_of(run, pattern)) {
    const bool is_optimizer = key.second.starts_with(kOptimizer);
    const std::string what = pattern ? run.steps_by.pattern : key.second;
    const std::int64_t total_ns = loop.total_ns;
    Candidate made = candidate_of(what, std::move(loop));
    const bool is_of_optimizer = is_optimizer || made.what == "optimizer steps";
    if (kind == Kind::optimizer && !is_of_optimizer) continue;
    if (is_optimizer && !pattern) {
      constexpr double kAlmostSure = 0.95;
      made.what = "optimizer steps (" + core::printable(key.second.substr(kOptimizer.size()), 80) + ")";
      made.weight = kAlmostSure;
      made.is_named = true;
      const auto first = std::ranges::find(work, false, &Launched::is_from_before);
      end_at_each(made.steps, first == work.end() ? made.steps.front().start_ns : first->asked_ns);
    }
    if (pattern || made.is_named) {
      named.push_back(std::move(made));
    } else if (made.steps.size() >= kLeastRepeats && !work.empty()) {
      others.emplace_back(-total_ns, std::move(made));
    }
  }
  std::ranges::stable_sort(others, {}, &std::pair<std::int64_t, Candidate>::first);
  if (others.size() > kMostLoops) others.resize(kMostLoops);
  for (auto& [time, made] : others) named.push_back(std::move(made));
  return named;
}

StepsBy StepsBy::parse(const std::string& text) {
  constexpr std::string_view kRange = "range:";
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"auto", Kind::automatic},
                                                          {"optimizer", Kind::optimizer},
                                                          {"kernels", Kind::kernels},
                                                          {"graph", Kind::graph},
                                                          {"none", Kind::none}};
  for (const auto& [name, kind] : kKinds) {
    if (text == name) return {.kind = kind};
  }
  if (!text.starts_with(kRange) || text.size() == kRange.size()) {
    throw core::UsageError("--steps-by " + core::printable(text) +
                           ": auto, optimizer, range:REGEX, kernels, graph or none");
  }
  StepsBy by{.kind = Kind::range, .pattern = text.substr(kRange.size())};
  try {
    const std::regex checked(by.pattern);
  } catch (const std::regex_error& error) {
    throw core::UsageError("--steps-by " + core::printable(text) +
                           ": no regular expression: " + error.what());
  }
  return by;
}

}  // namespace rooflm::foreign
