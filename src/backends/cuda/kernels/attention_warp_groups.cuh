// Attention on Hopper's matrix instructions: which shapes use it, and its launchers. Code of sm_90a only.
#pragma once

#include "backends/cuda/kernels/attention_backward.cuh"
#include "backends/cuda/kernels/attention_tiles.cuh"

namespace rooflm::backends::cuda {

constexpr int kWarpGroup = 128;  // threads
constexpr int kGroupRows = 64;   // rows of a product of one warp group

/// Heads of 64, 80 or 128 elements, a device of compute capability 9.0, and a build with its code.
[[nodiscard]] bool prefers_warp_groups(const AttentionShape& shape);

// attention_forward_sm90.cu, attention_backward_sm90.cu
void launch_attention_forward_warp_groups(Stream stream, const AttentionShape& shape, const bf16* qkv,
                                          bf16* y, float* lse);
void launch_attention_dq_warp_groups(Stream stream, const AttentionGradient& g);
void launch_attention_dkv_warp_groups(Stream stream, const AttentionGradient& g);

/// Calls body with the head size, which prefers_warp_groups has seen, as a type.
template <class Body>
void with_panel_dim(std::int64_t head_dim, Body&& body) {
  if (head_dim == 64) return body(std::integral_constant<int, 64>{});
  if (head_dim == 80) return body(std::integral_constant<int, 80>{});
  return body(std::integral_constant<int, 128>{});
}

}  // namespace rooflm::backends::cuda
