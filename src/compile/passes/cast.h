// Mixed precision: which tensors have which dtype.
#pragma once

#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::passes {

/// Rewrites an fp32 program for `dtype`. fp32: no change. fp64: every floating-point tensor becomes fp64 (for
/// gradient checks). bf16, fp16: activations and their gradients take that dtype unless marked
/// full_precision; weights stay fp32 masters, of which matmuls and embeddings read a `cast` copy made once
/// per step; norms, softmax, losses, weight gradients and the optimizer stay fp32.
void cast(program::Program& program, core::DType dtype);

}  // namespace rooflm::passes
