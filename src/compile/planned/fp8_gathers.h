// Tensor-parallel ranks exchange activations in fp8. For plans only.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// torchao's Float8ColwiseParallel and PrepareFloat8ModuleInput (float8/float8_tensor_parallel.py): rows that
/// only fp8 matmuls read are cast before they are gathered, which halves the bytes. The backward pass needs
/// only the fp8 copy in its other layout. The scale is that of all rows, so the ranks agree on it first. For
/// a step with current scaling (Fp8Scaling::current), after fp8_matmuls, before row_copies.
void fp8_gathers(program::Program& step);

}  // namespace rooflm::passes
