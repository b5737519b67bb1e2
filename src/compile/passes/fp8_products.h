// Products of layers that read fp8.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace rooflm::passes {

// What the pass writes for scales of the step. It is described, and no kernel computes it.
/// scale [1] = of the largest |x|.
extern const program::OpDef kLargestValue;

/// delayed: those of earlier steps. own: each operand of a product but weights is read once more for its
/// largest value before it is cast (torchao's dynamic scaling; those of weights are found for all weights at
/// once, on the ranks' parts). own_kept: what is recomputed is not read for it again.
enum class Fp8Scales : std::uint8_t { delayed, own, own_kept };

/// Of a finished bf16 step: the products of layers (forward, and both of the backward pass) read e4m3 copies
/// of their operands, which casts make from the bf16 ones. Embedding, head, norms, softmax, attention and
/// loss stay as they are, and so do results. A tensor is cast once for each pass and each layout in which
/// products read it: fp8 GEMMs of NVIDIA GPUs want both operands along k, so the backward pass has transposed
/// copies, too. Activations are kept for the backward pass in bf16, as torchao keeps them. Planned only: no
/// kernel reads fp8 yet.
void fp8_products(program::Program& step, Fp8Scales scales = Fp8Scales::delayed);

}  // namespace rooflm::passes
