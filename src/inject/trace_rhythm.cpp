// Which steps of a training loop have their activities kept.
#include "inject/trace_rhythm.h"

#include <algorithm>

namespace rooflm::inject {
namespace {

constexpr std::uint64_t kFirstTraced = 12;
constexpr std::uint64_t kTracedEach = 2;
/// Of what is measured: at least so many steps from one pair to the next, which begins at a multiple of
/// kAlignment: modules are marked in every sixteenth step.
constexpr std::uint64_t kShortestPause = 64;
constexpr std::uint64_t kAlignment = 16;
/// Steps alone whose time a pair may cost once: one in 500 is 0.2 %.
constexpr std::uint64_t kShare = 500;
/// Of what is timed alone: whoever saved a checkpoint or evaluated within a pair made it look dear, once.
constexpr std::uint64_t kLongestPauseNs = 600'000'000'000;

}  // namespace

bool TraceRhythm::end_step(std::uint64_t now_ns) {
  ++ended_;
  if (every_ != kByCost) {
    return every_ == 1 || ended_ < kFirstTraced || ended_ % every_ < kTracedEach;
  }
  if (last_ns_ != 0) note(now_ns - std::min(last_ns_, now_ns));
  last_ns_ = now_ns;
  const bool is_next = is_next_traced();
  if (is_next && !is_traced_) traced_ = timed_ = pair_ns_ = 0;
  is_traced_ = is_next;
  return is_next;
}

void TraceRhythm::note(std::uint64_t step_ns) {
  const bool is_first =
      ended_ <= kFirstTraced;  // steps that compile and warm up, too: no measure of what tracing costs
  if (is_traced_) {
    ++traced_;
    if (!is_first) pair_ns_ += step_ns;
  } else if (++timed_ == 1) {
    if (pair_ns_ > 0) pair_ns_ += step_ns;
  } else {
    timed_ns_[noted_++ % timed_ns_.size()] = step_ns;
  }
}

bool TraceRhythm::is_next_traced() const {
  if (ended_ < kFirstTraced) return true;
  if (is_traced_) return ended_ > kFirstTraced && traced_ < kTracedEach;
  return ended_ % kAlignment == 0 && timed_ >= pause();
}

std::uint64_t TraceRhythm::pause() const {
  auto times = timed_ns_;
  const auto end = times.begin() + static_cast<std::ptrdiff_t>(std::min(noted_, times.size()));
  const auto middle = times.begin() + (end - times.begin()) / 2;
  std::nth_element(times.begin(), middle, end);
  if (pair_ns_ == 0 || noted_ == 0 || *middle == 0) return kShortestPause - kFirstTraced;
  const std::uint64_t without_ns = (kTracedEach + 1) * *middle;
  const std::uint64_t cost_ns = pair_ns_ > without_ns ? pair_ns_ - without_ns : 0;
  return std::max(kShortestPause - kTracedEach, std::min(kShare * cost_ns, kLongestPauseNs) / *middle);
}

}  // namespace rooflm::inject
