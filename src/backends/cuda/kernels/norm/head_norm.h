// head_norm: norms of the query and key heads of packed projections, and their gradients.
//
// Activations are fp32, bf16 or fp16, `dtype`; weights, statistics and the arithmetic are fp32. Launchers
// only submit. They throw core::Unavailable for another dtype and std::runtime_error if a launch fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// Of qkv [rows, (H + 2K) D] the elements of each query and key head, or with `is_whole` of all query heads
/// and of all key heads, are normed: y = (x - mean) * rstd * w + b, the mean only with `is_layer`. v is
/// copied.
struct HeadNorm {
  core::DType dtype{};
  bool is_whole = false, is_layer = false, accumulate = false;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t groups = 0, width = 0;  // of a row: heads that are normed, or 2; elements
  float eps = 0;
  std::int64_t q_weights = 0, k_weights = 0;  // elements: D, all heads', or 0
  const float *wq = nullptr, *wk = nullptr;
  const float *bq = nullptr, *bk = nullptr;  // as long as the weights, or null
};

/// statistics [2, rows, groups]: mean and rstd. y may be qkv.
void launch_head_norm(Stream stream, const HeadNorm& norm, const void* qkv, void* y, float* statistics);
/// Of queries and of keys, (+)=; null where there are none.
struct HeadNormSums {
  float* queries = nullptr;
  float* keys = nullptr;
};
/// dqkv may be dy. `workspace` has head_norm_workspace_bytes bytes.
void launch_head_norm_backward(Stream stream, const HeadNorm& norm, const void* dy, const void* qkv,
                               const float* statistics, void* dqkv, const HeadNormSums& dw,
                               const HeadNormSums& db, float* workspace);
[[nodiscard]] std::size_t head_norm_workspace_bytes(const HeadNorm& norm);
/// Kernels of a backward launch.
[[nodiscard]] int head_norm_backward_launches(const HeadNorm& norm, bool has_biases);

}  // namespace rooflm::backends::cuda
