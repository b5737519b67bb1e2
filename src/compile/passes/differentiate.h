// Deriving the backward program from the gradient rules of the forward ops.
#pragma once

#include <cstddef>

#include "program/gradient.h"
#include "program/program.h"

namespace rooflm::passes {

/// Appends the backward ops of the forward ops [first, program.ops.size()), last op first. Its roots
/// are the ops with OpDef::begins_backward: losses, whose attribute grad_scale says how much they count, and
/// what is sent to another stage. `gradients` collects the gradient of each tensor; gradients of weights
/// already in it are added to, which is how micro-batches accumulate.
void differentiate(program::Program& program, std::size_t first, program::GradientMap& gradients);

}  // namespace rooflm::passes
