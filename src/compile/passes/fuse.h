// Operator fusion: the ops of the fused engine instead of the model's single operations.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Rewrites:
///   matmul + bias_add             -> matmul with bias
///   embedding + add_positions     -> embedding_positions
///   add + layernorm | rmsnorm     -> add_layernorm | add_rmsnorm
///   cross_entropy + its gradient  -> cross_entropy_with_gradient
///   norm backward + add           -> norm backward that adds the residual gradient
///   all updates of equal attributes -> one multi-tensor op; without clipping early_updates.h merges them
///   cast of a weight + its update -> the update writes the copy too; the cast moves to setup
/// with gelu_in_epilogue
///   matmul with bias + gelu       -> matmul_gelu, if gelu's input is kept and no op is recomputed: an
///                                    activation is the same wherever it is computed
/// with gelu_gradient_in_epilogue
///   matmul + gelu_backward        -> matmul_gelu_backward
/// and with bias_in_gradients
///   gelu_backward | layernorm_backward, bias_backward -> one that also sums the columns of its dx
/// A fused op computes the same numbers as the ops it replaces, with one exception: in 16 bits, GPU epilogues
/// apply GELU and its gradient to the fp32 sums of a matmul, before they are rounded.
struct FuseOptions {
  bool gelu_in_epilogue = false;  ///< for devices whose GEMM epilogue computes GELU
  bool gelu_gradient_in_epilogue = false;
  bool bias_in_gradients = false;  ///< for devices whose kernels sum columns on the way
  bool merge_updates = false;      ///< also without clipping, since no other pass moves them
};
void fuse(program::Program& program, const FuseOptions& options = {});

}  // namespace rooflm::passes
