// When enough has been measured.
#include "measure/stopping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "core/statistics.h"

namespace rooflm::measure {

Stopping::Stopping(const StoppingRule& rule) : rule_(rule) {
  const bool is_possible = rule.min_samples >= 1 && rule.max_samples >= rule.min_samples &&
                           rule.precision >= 0 && rule.max_seconds >= 0 && rule.confidence > 0 &&
                           rule.confidence < 1;
  if (!is_possible) throw std::invalid_argument("a stopping rule that cannot be met");
  next_check_ = static_cast<std::size_t>(rule.min_samples);
}

bool Stopping::is_precise() const {
  const core::Interval interval = core::median_interval(samples_, rule_.confidence);
  if (interval.coverage < rule_.confidence) return false;
  const double center = core::median(samples_);
  return std::max(center - interval.low, interval.high - center) <= rule_.precision * center;
}

void Stopping::add(double sample, double elapsed_s) {
  assert(!is_done());
  // Checking costs a sort: every sample at first, then each time the series is a twentieth longer.
  constexpr std::size_t kShare = 20;
  samples_.push_back(sample);
  const std::size_t count = samples_.size();
  if (rule_.precision > 0 && count >= next_check_) {
    next_check_ = count + std::max<std::size_t>(1, count / kShare);
    reached_precision_ = is_precise();
  }
  if (reached_precision_) {
    reason_ = fmt::format("interval within {:.3g} %", 100 * rule_.precision);
  } else if (count >= static_cast<std::size_t>(rule_.max_samples)) {
    reason_ = fmt::format("{} samples", rule_.max_samples);
  } else if (count >= static_cast<std::size_t>(rule_.min_samples) && elapsed_s >= rule_.max_seconds) {
    reason_ = fmt::format("{:.3g} s", rule_.max_seconds);
  }
}

}  // namespace rooflm::measure
