// Products of layers that read fp8.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Of a finished bf16 step: the products of layers (forward, and both of the backward pass) read e4m3 copies
/// of their operands, which casts make from the bf16 ones. Embedding, head, norms, softmax, attention and
/// loss stay as they are, and so do results. A tensor is cast once for each pass and each layout in which
/// products read it: fp8 GEMMs of NVIDIA GPUs want both operands along k, so the backward pass has transposed
/// copies, too. Activations are kept for the backward pass in bf16, as torchao keeps them. Scales are those
/// of earlier steps (delayed scaling): nothing is read once more for them. Planned only: no kernel reads fp8
/// yet.
void fp8_products(program::Program& step);

}  // namespace rooflm::passes
