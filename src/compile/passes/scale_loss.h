// Dynamic loss scaling, for compute dtypes whose range is too small for gradients (fp16).
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Rewrites a step with its optimizer. The gradients of logits are multiplied by the scale in the new
/// optimizer state "loss_scale" (program/loss_scale.h); an op loss_scale before the updates divides it out
/// again. The op tests the global gradient norm, which is computed even without clipping. If it is not
/// finite, the updates change nothing and the scale is halved. Everything happens on the device. The result
/// "grad_norm" is the unscaled norm.
void scale_loss(program::Program& program);

}  // namespace rooflm::passes
