// The learning rate of each step.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/named.h"

namespace rooflm::train {

using core::name_of;

/// constant: lr. linear: from lr down to min_lr. cosine: half a cosine from lr to min_lr (Loshchilov and
/// Hutter, 2017). wsd: lr, then linear to min_lr over the last `decay_share` of the steps (warm-up, stable,
/// decay; Hu et al., 2024). All after the same linear warm-up.
enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };
constexpr auto names_of(ScheduleKind) {
  return core::named<ScheduleKind>("schedule", {{ScheduleKind::constant, "constant"},
                                                {ScheduleKind::linear, "linear"},
                                                {ScheduleKind::cosine, "cosine"},
                                                {ScheduleKind::wsd, "wsd"}});
}

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 3e-4;               ///< highest learning rate
  double min_lr = 3e-5;           ///< what decaying schedules reach at `steps`
  std::int64_t warmup_steps = 0;  ///< steps with a rate below lr
  std::int64_t steps = 1;         ///< of the whole training
  double decay_share = 0.2;       ///< wsd: share of `steps` at the end that decays
  bool operator==(const Schedule&) const = default;
};

/// Throws core::UsageError naming the values: no steps, negative rates or warm-up, min_lr above lr, a warm-up
/// longer than the training, a share outside [0, 1].
void validate(const Schedule& schedule);

/// The rate of step `step`, 0 <= step (the first is 0). Warm-up: lr (step + 1) / (warmup_steps + 1), which
/// reaches lr in the first step after it. Decay begins there and would reach min_lr at step `steps`, one
/// after the last; from there on it stays at min_lr (constant: lr).
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace rooflm::train
