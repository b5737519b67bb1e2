// Derives the backward program from the gradient rules of the forward ops.
#pragma once

#include <cstddef>

#include "program/gradient.h"
#include "program/program.h"

namespace rooflm::passes {

/// Appends the backward ops of the forward ops [first, program.ops.size()), last op first. The roots are the
/// ops with OpDef::begins_backward: losses, weighted by their attribute grad_scale, and sends to the stage
/// that computes the loss. `gradients` collects the gradient of each tensor; weight gradients already in it
/// are added to, which is how micro-batches accumulate.
void differentiate(program::Program& program, std::size_t first, program::GradientMap& gradients);

}  // namespace rooflm::passes
