// Checks that the numbers of a step are finite.
#include "train/finite.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace rooflm::train {

void check_finite(const StepRecord& record, const std::string& last_checkpoint) {
  constexpr double kLeastScale = 0x1p-10;
  const double norm = record.grad_norm.value_or(record.is_skipped ? HUGE_VAL : 0);
  const bool norm_is_fine =
      record.is_skipped ? record.loss_scale.value_or(0) >= kLeastScale : std::isfinite(norm);
  const bool loss_is_bad = !std::isfinite(record.loss);
  if (!loss_is_bad && norm_is_fine) return;
  throw core::CheckFailed(fmt::format("step {}: the {} is {}; {}; a lower --lr or a longer warm-up may help",
                                      record.step, loss_is_bad ? "loss" : "gradient norm",
                                      loss_is_bad ? record.loss : norm, last_checkpoint));
}

}  // namespace rooflm::train
