// What tensor-parallel ranks exchange in fp8.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// torchao's Float8ColwiseParallel and PrepareFloat8ModuleInput (float8/float8_tensor_parallel.py): rows that
/// only fp8 products read are cast before they are gathered, so half as many bytes are, and what the backward
/// pass needs of them is the fp8 copy in its other layout. The scale is that of all rows, so ranks agree on
/// it first. Of a step with scales of its own (Fp8Scaling::current), after fp8_products, before row_copies.
void fp8_gathers(program::Program& step);

}  // namespace rooflm::passes
