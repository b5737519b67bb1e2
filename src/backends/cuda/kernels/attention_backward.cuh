// What the two tensor-core kernels of the gradient of attention share.
#pragma once

#include "backends/cuda/kernels/attention_tiles.cuh"

namespace rooflm::backends::cuda {

/// Columns of scores that a warp has in registers at once, beside their gradients.
constexpr int kPart = 32;

/// Operands of both kernels; delta [B, H, T] is rowsum(dy y), which the first one computes for the second.
struct AttentionGradient {
  AttentionShape shape;
  float scale;
  const bf16* dy;
  const bf16* qkv;
  const bf16* y;
  const float* lse;
  float* delta;
  bf16* dqkv;
};

// attention_backward_dq.cu, attention_backward_dkv.cu: as launch_attention_forward_mma; together they write
// all of dqkv.
void launch_attention_dq(Stream stream, const AttentionGradient& g);
void launch_attention_dkv(Stream stream, const AttentionGradient& g);

}  // namespace rooflm::backends::cuda
