// Activations that a gradient's kernel writes again instead of the forward pass keeping them.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// The gradient of a weight needs the input of its matmul: the output of a norm, of SwiGLU or of GELU. The
/// gradient of that op reads all that its output is made of. It therefore writes the output once more
/// (attribute `rebuilds`, one output more), and the matmuls that read it follow. The forward pass does not
/// keep it, and a copy that recompute inserted goes. This costs one more write of the tensor in the backward
/// pass and no bit of any result, with one exception: GELU in a GEMM's epilogue (passes/fuse.h) is taken of
/// sums that are not rounded, and again of rounded ones. Left alone are outputs that other ops of the
/// backward pass read (collectives, recomputed matmuls), and gradients that something reads before they could
/// be computed. Run after fuse, and before passes that move ops or use the lane `background`.
void rebuild(program::Program& program);

}  // namespace rooflm::passes
