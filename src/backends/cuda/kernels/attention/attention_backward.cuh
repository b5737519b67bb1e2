// What the two tensor-core kernels of the gradient of attention share.
#pragma once

#include "backends/cuda/kernels/attention/attention_tiles.cuh"

namespace rooflm::backends::cuda {

/// Operands of both kernels; delta [B, H, T] is rowsum(dy y), which the first one computes for the second.
template <class E>
struct AttentionGradient {
  AttentionShape shape;
  float scale;
  const E* dy;
  const E* qkv;
  const E* y;
  const float* lse;
  float* delta;
  E* dqkv;
};

// attention_backward_dq.cu, attention_backward_dkv.cu: as launch_attention_forward_mma; together they write
// all of dqkv.
template <class E>
void launch_attention_dq(Stream stream, const AttentionGradient<E>& g);
template <class E>
void launch_attention_dkv(Stream stream, const AttentionGradient<E>& g);

}  // namespace rooflm::backends::cuda
