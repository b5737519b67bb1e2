// Checks that the numbers of a step are finite.
#pragma once

#include <string>

#include "train/train_log.h"

namespace rooflm::train {

/// Throws core::CheckFailed naming the step and `last_checkpoint`, a sentence, when the loss or the gradient
/// norm is not finite. Scaled gradients may overflow, which skips the step and halves their scale, but not at
/// any scale.
void check_finite(const StepRecord& record, const std::string& last_checkpoint);

}  // namespace rooflm::train
