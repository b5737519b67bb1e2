// Gradients that are added up over micro-batches in passes of their own.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// What the pass writes. It is described, and no kernel computes it: it is no part of ops::all().
/// sum += x.
extern const program::OpDef kAddGradient;

/// Products that make gradients of weights of a later micro-batch do not add to what is there: they write a
/// gradient in the dtype of their factors, which is then added (PyTorch's AccumulateGrad, FSDP2's
/// to_accumulated_grad_if_needed, Megatron-LM's main_grad.add_). Of a finished step, before lanes are set.
void gradient_sums(program::Program& step);

}  // namespace rooflm::passes
