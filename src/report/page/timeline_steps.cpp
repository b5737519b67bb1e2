// Which steps of a run its timeline shows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/statistics.h"
#include "report/model/gaps.h"
#include "report/model/traced_kernels.h"
#include "report/page/timeline_builder.h"

namespace rooflm::report {
namespace {

constexpr std::size_t kMostSteps = 16;
constexpr std::size_t kSoughtSteps = 3;  ///< the usual one, the slowest, the one with the longest gap

}  // namespace

std::string TimelineBuilder::kind_of_step(std::int64_t step) const {
  const auto sample = std::ranges::find(run_.samples, step, &record::Sample::step);
  return sample == run_.samples.end() ? "" : sample->kind;
}

/// Steps in the order in which they are wanted: the one nearest to the median first, then the slowest, the
/// one with the longest gap and the fastest, then the others as they ran; last those that ran in another way:
/// kernels one by one, with memory traced, or with the copies of their inputs.
std::vector<std::int64_t> TimelineBuilder::wanted_steps(const Spans& spans) const {
  std::vector<std::int64_t> steps, ordered;
  for (const auto& [step, span] : spans) {
    const std::string kind = kind_of_step(step);
    const bool is_other = kind == kInOrder || kind == kAllocations || kind == kInputs;
    (is_other ? ordered : steps).push_back(step);
  }
  if (steps.empty()) std::swap(steps, ordered);
  const auto length = [&](std::int64_t step) { return spans.at(step).end_ns - spans.at(step).start_ns; };
  std::vector<double> lengths;
  for (const std::int64_t step : steps) lengths.push_back(static_cast<double>(length(step)));
  const double median = core::median(lengths);
  const auto off = [&](std::int64_t step) { return std::abs(static_cast<double>(length(step)) - median); };
  std::iter_swap(steps.begin(), std::ranges::min_element(steps, {}, off));
  auto rest = steps.begin() + 1;
  const auto take = [&](auto chosen) {
    if (chosen != steps.end()) std::iter_swap(rest++, chosen);
  };
  take(std::max_element(rest, steps.end(), [&](auto a, auto b) { return length(a) < length(b); }));
  for (const Gap& gap : gaps_of(run_, 1)) take(std::find(rest, steps.end(), gap.step));
  take(std::min_element(rest, steps.end(), [&](auto a, auto b) { return length(a) < length(b); }));
  std::sort(rest, steps.end());
  steps.insert(steps.end(), ordered.begin(), ordered.end());
  return steps;
}

void TimelineBuilder::choose_steps(Spans spans) {
  if (allowed_) {
    std::erase_if(spans, [&](const auto& step) { return !allowed_->contains(step.first); });
  }
  if (spans.empty()) return;
  const std::vector<std::int64_t> wanted = wanted_steps(spans);
  std::size_t events = 0;
  for (const std::int64_t step : wanted) {
    const Span& span = spans.at(step);
    // What a reader looks for first is there even where there are more.
    const std::size_t most =
        timeline_.steps.size() < kSoughtSteps ? kSoughtSteps * most_events_ : most_events_;
    if (!timeline_.steps.empty() && events + span.events > most) continue;
    if (timeline_.steps.size() == kMostSteps) break;
    events += span.events;
    timeline_.steps.push_back(
        {.step = step, .kind = kind_of_step(step), .start_ns = span.start_ns, .end_ns = span.end_ns});
  }
  std::ranges::sort(timeline_.steps, {}, &TimelineStep::step);
  timeline_.shown = *step_place(wanted.front());
  if (timeline_.steps.size() < wanted.size()) {
    timeline_.notes.push_back(
        fmt::format("{} of {} observed steps are here: the one nearest to the median, the slowest, "
                    "the one with the longest gap, the fastest, then others as they ran.",
                    timeline_.steps.size(), wanted.size()));
  }
}

}  // namespace rooflm::report
