// Less memory and traffic for what a step in bf16 keeps and updates.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Weights that are computed with in bf16 are kept in halves (Tensor::halved), and the bf16 copy becomes a
/// view of the upper ones: 4 bytes a parameter instead of 6, and nothing is lost. Biases that products add
/// are read so, too. For fused programs; weights that another op reads in fp32 stay as they are.
void share_halves(program::Program& program);

/// Gradients of matrices that one product writes become bf16: sums in fp32, rounded once. Those that are
/// added up over micro-batches, chunks of the loss or several uses of a weight stay fp32. Ranks add up what
/// is bf16 in bf16.
void narrow_gradients(program::Program& program);

}  // namespace rooflm::passes
