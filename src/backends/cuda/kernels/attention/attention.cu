// Flash attention: chooses between tensor cores and CUDA cores, and sums rows of dy y for the gradient.
#include <string>
#include <utility>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/attention/attention_backward.cuh"
#include "backends/cuda/kernels/attention/attention_fp32.cuh"
#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/attention/attention_tiles.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a row of delta

bool fits_tensor_cores(core::DType dtype, const AttentionShape& s, Fp32Products products,
                       std::initializer_list<const void*> operands) {
  return runs_on_tensor_cores(dtype, s, products) && are_aligned(operands);
}

/// Calls body with a value of the type that the kernels for tensor cores take.
template <class Body>
void with_factor(core::DType dtype, Fp32Products products, const char* what, Body&& body) {
  if (dtype == core::DType::f32 && products == Fp32Products::bf16x6) return body(SplitFloat{});
  with_element(dtype, what, std::forward<Body>(body));
}

void check_head_dim(const AttentionShape& s, const char* what) {
  if (s.head_dim > kMaxHeadDim) {
    throw core::Unavailable(std::string(what) + " on cuda: heads of " + std::to_string(s.head_dim) +
                            " elements, the most is " + std::to_string(kMaxHeadDim));
  }
}

/// delta[b, h, t] = sum over d of dy[b, t, h, d] y[b, t, h, d]: eight lanes per row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_products(AttentionShape s, bool aligned, const T* dy, const T* y, float* delta) {
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;  // of [B, T, H]
  const bool exists = row < s.batch * s.seq * s.heads;
  float sum = 0;
  for (std::int64_t d = threadIdx.x % kLanes * kPack; exists && d < s.head_dim; d += kLanes * kPack) {
    const Pack a = load_pack(dy + row * s.head_dim, d, s.head_dim, aligned);
    const Pack b = load_pack(y + row * s.head_dim, d, s.head_dim, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum += a[i] * b[i];
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (!exists || threadIdx.x % kLanes > 0) return;
  const std::int64_t position = row / s.heads;
  const std::int64_t head = row - position * s.heads;
  const std::int64_t batch = position / s.seq;
  delta[(batch * s.heads + head) * s.seq + position - batch * s.seq] = sum;
}

/// A block has one head; delta and lse are [B, H, T].
__global__ void __launch_bounds__(kThreads) sum_sinks(AttentionShape s, const float* delta, const float* lse,
                                                      Sinks sinks, bool accumulate, float* d_sinks) {
  const std::int64_t head = blockIdx.x;
  const float sink = lse == nullptr ? 0.0F : sink_of(sinks, head);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < s.batch * s.seq; i += kThreads) {
    const std::int64_t batch = i / s.seq;
    const std::int64_t at = (batch * s.heads + head) * s.seq + i - batch * s.seq;
    sum += lse == nullptr ? delta[at] : expf(sink - lse[at]) * delta[at];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) d_sinks[head] = (accumulate ? d_sinks[head] : 0.0F) - sum;
}

}  // namespace

void launch_row_products(Stream stream, core::DType dtype, const AttentionShape& shape, const void* dy,
                         const void* y, float* delta) {
  const char* what = "flash_attention_backward, sums of rows";
  const std::int64_t rows = shape.batch * shape.seq * shape.heads;
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = shape.head_dim % kPack == 0 && are_aligned({dy, y});
    row_products<<<grid_size(ceil_div(rows * kLanes, kThreads), what), kThreads, 0, stream>>>(
        shape, aligned, static_cast<const T*>(dy), static_cast<const T*>(y), delta);
  });
  check_launch(what);
}

bool runs_on_tensor_cores(core::DType dtype, const AttentionShape& shape, Fp32Products products) {
  constexpr std::int64_t kWhole = 8;
  const bool is_half = dtype == core::DType::bf16 || dtype == core::DType::f16;
  if (!is_half && !(dtype == core::DType::f32 && products != Fp32Products::plain)) return false;
  if (!is_half && shape.has_rules()) return false;
  if (shape.head_dim % kWhole != 0 || shape.head_dim > kMaxHeadDim) return false;
  const bool is_split = !is_half && products == Fp32Products::bf16x6;
  if (is_split && !is_split_head_dim(shape.head_dim)) return false;
  const auto has_room = [&]<class E>(E) {
    int needed = 0;
    with_tile_dim<E>(shape.head_dim, [&]<class Dim>(Dim) { needed = kSharedBytes<Dim::value, E>; });
    return needed == 0 || most_shared_bytes() >= needed;
  };
  return is_half ? has_room(fp16{}) : has_room(float{});
}

bool runs_on_warp_groups(core::DType dtype, const AttentionShape& shape) {
  return dtype == core::DType::bf16 && prefers_warp_groups(shape);
}

void launch_flash_attention(Stream stream, core::DType dtype, const AttentionShape& shape, const void* qkv,
                            void* y, float* lse, Fp32Products products, const Sinks& sinks) {
  check_head_dim(shape, "flash_attention");
  if (!fits_tensor_cores(dtype, shape, products, {qkv, y})) {
    launch_attention_forward_fp32(stream, dtype, shape, qkv, y, lse, sinks);
    return;
  }
  with_factor(dtype, products, "flash_attention", [&]<class E>(E) {
    launch_attention_forward_mma(stream, shape, static_cast<const E*>(qkv), static_cast<E*>(y), lse, sinks);
  });
}

void launch_flash_attention_backward(Stream stream, core::DType dtype, const AttentionShape& shape,
                                     const void* dy, const void* qkv, const void* y, const float* lse,
                                     void* dqkv, void* workspace, Fp32Products products) {
  const char* what = "flash_attention_backward";
  check_head_dim(shape, what);
  auto* delta = static_cast<float*>(workspace);
  if (fits_tensor_cores(dtype, shape, products, {dy, qkv, y, dqkv})) {
    return with_factor(dtype, products, what, [&]<class E>(E) {
      const AttentionGradient<E> gradient{.shape = shape,
                                          .scale = scale_of(shape),
                                          .dy = static_cast<const E*>(dy),
                                          .qkv = static_cast<const E*>(qkv),
                                          .y = static_cast<const E*>(y),
                                          .lse = lse,
                                          .delta = delta,
                                          .dqkv = static_cast<E*>(dqkv)};
      launch_attention_dq(stream, gradient);
      launch_attention_dkv(stream, gradient);
    });
  }
  launch_row_products(stream, dtype, shape, dy, y, delta);
  launch_attention_backward_fp32(stream, dtype, shape, dy, qkv, lse, delta, dqkv);
}

void launch_sinks_gradient(Stream stream, core::DType dtype, const AttentionShape& shape, const void* dy,
                           const void* y, const float* lse, const Sinks& sinks, float* d_sinks,
                           void* workspace, bool accumulate) {
  auto* delta = static_cast<float*>(workspace);
  launch_row_products(stream, dtype, shape, dy, y, delta);
  launch_sum_sinks(stream, shape, delta, lse, sinks, d_sinks, accumulate);
}

void launch_sum_sinks(Stream stream, const AttentionShape& shape, const float* delta, const float* lse,
                      const Sinks& sinks, float* d_sinks, bool accumulate) {
  const char* what = "gradient of sinks";
  sum_sinks<<<grid_size(shape.heads, what), kThreads, 0, stream>>>(shape, delta, lse, sinks, accumulate,
                                                                   d_sinks);
  check_launch(what);
}

std::size_t flash_attention_backward_workspace_bytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.seq * shape.heads) * sizeof(float);
}

}  // namespace rooflm::backends::cuda
