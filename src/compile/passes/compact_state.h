// Less memory and traffic for the persistent state and the updates of steps in 16 bits.
#pragma once

#include "compile/passes/optimizer.h"
#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::passes {

/// Stores weights that are read in `dtype`, bf16 or fp16, as halves (Tensor::halves); the copy becomes a view
/// of the upper halves. That is 4 bytes per parameter instead of 6, and loses nothing (in fp16: nothing that
/// counts, core/halves.h). Biases that matmuls add are read the same way. For fused programs; weights that
/// another op reads in fp32 do not change.
void share_halves(program::Program& program, core::DType dtype);

/// For programs that no training shares weights with: weights that only casts to `dtype`, bf16 or fp16, read
/// are stored in `dtype`, two bytes a parameter, and the casts go away. Weights that another op reads in
/// fp32, norms say, do not change; biases that matmuls add do with `biases`. With `frozen`, weights of
/// adapters, which training shares, do not change either.
void narrow_weights(program::Program& program, core::DType dtype, bool biases, bool frozen = false);

/// In a program of `narrow_weights`, casts of weights to fp8 become setup: they are made once, and kept.
void cast_weights_once(program::Program& program);

/// Weight gradients of matrices that a single matmul writes become `dtype`, bf16 or fp16: summed in fp32,
/// rounded once. Gradients that accumulate over micro-batches, loss chunks or several uses of a weight stay
/// fp32, and those that the optimizer multiplies. Ranks reduce narrow gradients as they are. In fp16 they
/// contain the factor of the loss (passes/scale_loss.h), and one that overflows skips the update.
void narrow_gradients(program::Program& program, core::DType dtype, OptimizerKind optimizer);

}  // namespace rooflm::passes
