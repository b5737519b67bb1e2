// Weights that exist only in fp8. For plans only.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Megatron-Core's --fp8-param-gather: a weight that only fp8 matmuls read has no 16-bit copy. The optimizer
/// writes fp8 from the masters, data-parallel ranks gather fp8, and the transposed layout, where matmuls need
/// it, is made from that. Scales are computed once per step, with the update. For a step with current scaling
/// (Fp8Scaling::current) and weights that are split over ranks, after fp8_matmuls.
void fp8_parameters(program::Program& step);

}  // namespace rooflm::passes
