// Gradient accumulation over micro-batches by separate additions. For plans only.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// Emitted by the pass; no kernel computes it, so it is not in ops::all(). sum += x.
extern const program::OpDef kAddGradient;

/// Weight-gradient matmuls of later micro-batches do not accumulate in place. They write a gradient in the
/// dtype of their operands, which a separate op adds (PyTorch's AccumulateGrad, FSDP2's
/// to_accumulated_grad_if_needed, Megatron-LM's main_grad.add_). Runs on a finished step, before lanes are
/// set.
void gradient_sums(program::Program& step);

}  // namespace rooflm::passes
