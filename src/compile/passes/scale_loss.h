// Dynamic loss scaling, for compute dtypes whose range is too small for gradients.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Rewrites a step with its optimizer: gradients of logits are multiplied by the scale that the new optimizer
/// state "loss_scale" holds (program/loss_scale.h), and an op loss_scale before the updates takes it out
/// again. It finds by the gradients' global norm, computed even without clipping, whether they are all
/// finite; where they are not, the updates change nothing and the scale is halved. All of it happens on the
/// device. The result "grad_norm" is the norm without the scale.
void scale_loss(program::Program& program);

}  // namespace rooflm::passes
