// The learning rate of each step.
#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "core/error.h"

namespace rooflm::train {
namespace {

/// Share of the decay that is done, 0 at `first` and 1 at `last`.
double progress(double step, double first, double last) {
  if (last <= first) return step < last ? 0.0 : 1.0;
  return std::clamp((step - first) / (last - first), 0.0, 1.0);
}

}  // namespace

void validate(const Schedule& s) {
  using core::UsageError;
  if (s.steps < 1) throw UsageError(fmt::format("--steps must be at least 1, got {}", s.steps));
  if (!(s.lr > 0) || !std::isfinite(s.lr)) {
    throw UsageError(fmt::format("--lr must be positive, got {}", s.lr));
  }
  if (!(s.min_lr >= 0) || s.min_lr > s.lr) {
    throw UsageError(fmt::format("--min-lr {} must lie between 0 and --lr {}", s.min_lr, s.lr));
  }
  if (s.warmup_steps < 0 || s.warmup_steps > s.steps) {
    throw UsageError(
        fmt::format("--warmup-steps {} must lie between 0 and --steps {}", s.warmup_steps, s.steps));
  }
  if (!(s.decay_share >= 0 && s.decay_share <= 1)) {
    throw UsageError(fmt::format("--decay-share {} must lie between 0 and 1", s.decay_share));
  }
}

double learning_rate(const Schedule& s, std::int64_t step) {
  const auto now = static_cast<double>(step);
  const auto warm = static_cast<double>(s.warmup_steps);
  const auto end = static_cast<double>(s.steps);
  if (step < s.warmup_steps) return s.lr * (now + 1) / (warm + 1);
  const double fall = s.lr - s.min_lr;
  switch (s.kind) {
    case ScheduleKind::constant:
      return s.lr;
    case ScheduleKind::linear:
      return s.lr - fall * progress(now, warm, end);
    case ScheduleKind::cosine:
      return s.min_lr + 0.5 * fall * (1 + std::cos(std::numbers::pi * progress(now, warm, end)));
    case ScheduleKind::wsd:
      return s.lr - fall * progress(now, std::max(warm, end * (1 - s.decay_share)), end);
  }
  return s.lr;
}

}  // namespace rooflm::train
