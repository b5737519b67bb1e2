// Fewer, fatter ops: what the fused engine runs instead of the model's single operations.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Rewrites:
///   product + bias_add            -> product with bias
///   embedding + add_positions     -> embedding_positions
///   add + layernorm | rmsnorm     -> add_layernorm | add_rmsnorm
///   cross_entropy + its gradient  -> cross_entropy_with_gradient
///   norm backward + add           -> norm backward that adds the residual gradient
///   all updates of equal attributes -> one multi-tensor op; without clipping early_updates.h merges them
///   cast of a weight + its update -> the update writes the copy too; the cast moves to setup
/// and with gelu_in_products
///   product + gelu_backward       -> matmul_gelu_backward
///   product with bias + gelu      -> matmul_gelu, where gelu's input is kept and no op is recomputed: an
///                                    activation is the same wherever it is computed
/// Each fused op computes the same numbers as the ops it replaces, with one exception: in 16 bits GPUs apply
/// GELU and its gradient to a product's fp32 sums, before they are rounded.
struct FuseOptions {
  bool gelu_in_products = false;  ///< for devices whose products do that in their epilogue
  bool merge_updates = false;     ///< without clipping, too: nobody moves them
};
void fuse(program::Program& program, const FuseOptions& options = {});

}  // namespace rooflm::passes
