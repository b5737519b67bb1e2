// Attention on Hopper's matrix instructions: which shapes use it, and its launchers. Code of sm_90a only.
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/attention/attention_backward.cuh"
#include "backends/cuda/kernels/attention/attention_tiles.cuh"

namespace rooflm::backends::cuda {

constexpr int kWarpGroup = 128;  // threads
constexpr int kGroupRows = 64;   // rows of a product of one warp group

/// Heads of 64, 80 or 128 elements, a device of compute capability 9.0, and a build with its code
/// (ROOFLM_CUDA_WARP_GROUPS).
[[nodiscard]] bool prefers_warp_groups(const AttentionShape& shape);

// attention_forward_sm90.cu, attention_backward_sm90.cu
void launch_attention_forward_warp_groups(Stream stream, const AttentionShape& shape, const bf16* qkv,
                                          bf16* y, float* lse, const Sinks& sinks);
void launch_attention_dq_warp_groups(Stream stream, const AttentionGradient<bf16>& g);
void launch_attention_dkv_warp_groups(Stream stream, const AttentionGradient<bf16>& g);

/// Blocks of a kernel that streams `bytes_of_head` of each head past `tiles` blocks: (some heads, tiles,
/// groups of such heads). Blocks start in this order, so a group is done before the next one begins, and what
/// its heads stream stays in the second-level cache: with all heads in one group each block reads it from
/// memory again (gpt2, B=32 T=1024, keys and values: 1.04 instead of 0.3 GB). The last group may have fewer
/// heads than places. Where the cache holds all heads there is one group: groups have less work to balance
/// (4 x 16 heads of 80, T=1024: 4 % slower in two).
inline dim3 head_grid(std::int64_t heads, std::int64_t tiles, std::int64_t bytes_of_head, const char* what) {
  constexpr std::int64_t kGroupBytes = 16 << 20;  // two groups are under way at times
  constexpr std::int64_t kWholeBytes = 3 * kGroupBytes;
  constexpr std::int64_t kMostGroups = 65535;
  const std::int64_t of_group =
      std::max<std::int64_t>(kGroupBytes / std::max<std::int64_t>(bytes_of_head, 1), 1);
  const std::int64_t groups =
      heads * bytes_of_head <= kWholeBytes ? 1 : std::min(ceil_div(heads, of_group), kMostGroups);
  return {grid_size(ceil_div(heads, groups), what), static_cast<unsigned>(tiles),
          static_cast<unsigned>(groups)};
}

/// Which head of the batch a block of such a grid has; as many as there are or more: none.
__device__ inline std::int64_t head_of_block() { return std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x; }

/// Calls body with the head size, which prefers_warp_groups has seen, as a type.
template <class Body>
void with_panel_dim(std::int64_t head_dim, Body&& body) {
  if (head_dim == 64) return body(std::integral_constant<int, 64>{});
  if (head_dim == 80) return body(std::integral_constant<int, 80>{});
  return body(std::integral_constant<int, 128>{});
}

}  // namespace rooflm::backends::cuda
