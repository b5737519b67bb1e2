// Weights that exist in fp8 alone.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Megatron-Core's --fp8-param-gather: a weight that only fp8 products read has no copy in 16 bits. What the
/// optimizer makes of the masters, and what data-parallel ranks gather, is fp8; the other layout, where
/// products want one, is made of that. Scales are found once in a step, with the update. Of a step with
/// scales of its own (Fp8Scaling::current) and weights that are split over ranks, after fp8_products.
void fp8_parameters(program::Program& step);

}  // namespace rooflm::passes
