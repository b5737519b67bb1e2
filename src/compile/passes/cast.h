// Mixed precision: which tensors are kept in which dtype.
#pragma once

#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::passes {

/// Rewrites an fp32 program for `dtype`. fp32: nothing changes. fp64: every floating tensor becomes fp64
/// (gradient checks). bf16, fp16: activations and their gradients take that dtype unless they are marked
/// full_precision; weights stay fp32 masters and products and embeddings read a `cast` copy made once per
/// step; norms, softmax, losses, gradients of weights and the optimizer stay fp32.
void cast(program::Program& program, core::DType dtype);

}  // namespace rooflm::passes
