// Ring attention: a rank's own keys go through flash attention, those of others, of which each query sees all
// or none, through the kernels on CUDA cores; and what joins the blocks, a thread per element or a warp per
// row.
#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/attention/attention_block.h"
#include "backends/cuda/kernels/attention/attention_fp32.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kAlignment = 256;

std::size_t aligned_bytes(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

unsigned blocks_for(std::int64_t threads, const char* what) {
  return grid_size(ceil_div(threads, kThreads), what);
}

__device__ std::int64_t own_index() { return std::int64_t{blockIdx.x} * kThreads + threadIdx.x; }

std::int64_t query_width(const AttentionShape& s) { return s.heads * s.head_dim; }
std::int64_t other_width(const AttentionShape& s) { return 2 * s.kv_heads * s.head_dim; }
std::int64_t rows_of(const AttentionShape& s) { return s.batch * s.seq; }

/// The last `taken` of each `width` elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    take_ends(std::int64_t rows, std::int64_t width, std::int64_t taken, const T* from, T* to) {
  const std::int64_t i = own_index();
  if (i < rows * taken) to[i] = from[i / taken * width + width - taken + i % taken];
}

/// 0 and -inf for the first `unseen` queries of each batch element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_unseen(AttentionShape s, std::int64_t unseen, T* y, float* lse) {
  const std::int64_t i = own_index();
  const std::int64_t width = s.heads * s.head_dim;
  if (i < s.batch * unseen * width) {
    const std::int64_t b = i / (unseen * width);
    y[b * s.seq * width + i % (unseen * width)] = from_float<T>(0);
  }
  if (i < s.batch * s.heads * unseen) lse[i / unseen * s.seq + i % unseen] = -INFINITY;
}

/// Block: a row of y; a thread: its elements, head by head.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_blocks(AttentionShape s, const T* more_y, const float* more_lse, T* y, const float* lse) {
  const std::int64_t row = blockIdx.x;  // of [B, T]
  const std::int64_t b = row / s.seq;
  const std::int64_t t = row - b * s.seq;
  const std::int64_t width = s.heads * s.head_dim;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const std::int64_t at = (b * s.heads + i / s.head_dim) * s.seq + t;
    const float greatest = fmaxf(lse[at], more_lse[at]);
    if (greatest == -INFINITY) continue;  // neither sees anything: y is 0
    const float first = expf(lse[at] - greatest);
    const float second = expf(more_lse[at] - greatest);
    const float share = 1.0F / (first + second);
    const std::int64_t element = row * width + i;
    y[element] = from_float<T>(share * (first * to_float(y[element]) + second * to_float(more_y[element])));
  }
}

__global__ void __launch_bounds__(kThreads) join_lse(std::int64_t count, const float* more, float* lse) {
  const std::int64_t i = own_index();
  if (i >= count) return;
  const float greatest = fmaxf(lse[i], more[i]);
  if (greatest == -INFINITY) return;
  lse[i] = greatest + logf(expf(lse[i] - greatest) + expf(more[i] - greatest));
}

/// to = rows of `first` and `second` side by side.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_rows(std::int64_t rows, std::int64_t first_width, std::int64_t second_width, const float* first,
              const float* second, T* to) {
  const std::int64_t i = own_index();
  const std::int64_t width = first_width + second_width;
  if (i >= rows * width) return;
  const std::int64_t row = i / width;
  const std::int64_t col = i - row * width;
  to[i] = from_float<T>(col < first_width ? first[row * first_width + col]
                                          : second[row * second_width + col - first_width]);
}

/// The other way round.
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_rows(std::int64_t rows, std::int64_t first_width, std::int64_t second_width, const T* from,
               float* first, float* second, bool add) {
  const std::int64_t i = own_index();
  const std::int64_t width = first_width + second_width;
  if (i >= rows * width) return;
  const std::int64_t row = i / width;
  const std::int64_t col = i - row * width;
  float* to =
      col < first_width ? first + row * first_width + col : second + row * second_width + col - first_width;
  *to = to_float(from[i]) + (add ? *to : 0.0F);
}

/// Whether the block is the rank's own, and flash attention has faster kernels for it.
bool is_flash(core::DType dtype, const AttentionBlock& block) {
  return block.causal && runs_on_tensor_cores(dtype, block.shape);
}

}  // namespace

void launch_take_keys_values(Stream stream, core::DType dtype, const AttentionShape& s, const void* qkv,
                             void* keys_values) {
  const char* what = "take_keys_values";
  with_element(dtype, what, [&]<class T>(T) {
    take_ends<<<blocks_for(rows_of(s) * other_width(s), what), kThreads, 0, stream>>>(
        rows_of(s), query_width(s) + other_width(s), other_width(s), static_cast<const T*>(qkv),
        static_cast<T*>(keys_values));
  });
  check_launch(what);
}

void launch_attention_block(Stream stream, core::DType dtype, const AttentionBlock& block, const void* qkv,
                            const void* keys_values, void* y, float* lse) {
  const char* what = "attention_block";
  const AttentionShape& s = block.shape;
  if (s.head_dim > kMaxHeadDim || is_flash(dtype, block))
    return launch_flash_attention(stream, dtype, s, qkv, y, lse);  // it refuses large heads
  if (block.first_query > 0) {
    with_element(dtype, what, [&]<class T>(T) {
      fill_unseen<<<blocks_for(s.batch * block.first_query * query_width(s), what), kThreads, 0, stream>>>(
          s, block.first_query, static_cast<T*>(y), lse);
    });
    check_launch(what);
  }
  launch_block_forward_fp32(stream, dtype, block, qkv, keys_values, y, lse);
}

void launch_join_blocks(Stream stream, core::DType dtype, const AttentionShape& s, const void* more_y,
                        const float* more_lse, void* y, float* lse) {
  const char* what = "join_blocks";
  with_element(dtype, what, [&]<class T>(T) {
    join_blocks<<<grid_size(rows_of(s), what), kThreads, 0, stream>>>(s, static_cast<const T*>(more_y),
                                                                      more_lse, static_cast<T*>(y), lse);
  });
  check_launch(what);
  const std::int64_t rows = s.batch * s.heads * s.seq;
  join_lse<<<blocks_for(rows, what), kThreads, 0, stream>>>(rows, more_lse, lse);
  check_launch(what);
}

void launch_attention_block_backward(Stream stream, core::DType dtype, const AttentionBlock& block,
                                     const void* dy, const void* qkv, const void* keys_values, const void* y,
                                     const float* lse, float* dq, float* d_keys_values, void* workspace,
                                     bool accumulate) {
  const char* what = "attention_block_backward";
  const AttentionShape& s = block.shape;
  auto* delta = static_cast<float*>(workspace);
  if (s.head_dim > kMaxHeadDim || is_flash(dtype, block)) {
    void* dqkv =
        static_cast<std::byte*>(workspace) + aligned_bytes(flash_attention_backward_workspace_bytes(s));
    launch_flash_attention_backward(stream, dtype, s, dy, qkv, y, lse, dqkv, delta);
    with_element(dtype, what, [&]<class T>(T) {
      const std::int64_t elements = rows_of(s) * (query_width(s) + other_width(s));
      split_rows<<<blocks_for(elements, what), kThreads, 0, stream>>>(
          rows_of(s), query_width(s), other_width(s), static_cast<const T*>(dqkv), dq, d_keys_values,
          accumulate);
    });
    return check_launch(what);
  }
  if (!accumulate) {  // of what the block does not see there is no gradient
    const auto zero = [&](float* data, std::int64_t width) {
      const auto bytes = static_cast<std::size_t>(rows_of(s) * width) * sizeof(float);
      if (cudaMemsetAsync(data, 0, bytes, stream) != cudaSuccess) check_launch(what);
    };
    zero(dq, query_width(s));
    zero(d_keys_values, other_width(s));
  }
  launch_row_products(stream, dtype, s, dy, y, delta);
  launch_block_backward_fp32(stream, dtype, block, dy, qkv, keys_values, lse, delta, dq, d_keys_values,
                             accumulate);
}

std::size_t attention_block_workspace_bytes(core::DType dtype, const AttentionBlock& block) {
  const AttentionShape& s = block.shape;
  const std::size_t rows = aligned_bytes(flash_attention_backward_workspace_bytes(s));
  if (!is_flash(dtype, block)) return rows;
  return rows +
         static_cast<std::size_t>(rows_of(s) * (query_width(s) + other_width(s))) * core::size_of(dtype);
}

void launch_join_gradients(Stream stream, core::DType dtype, const AttentionShape& s, const float* dq,
                           const float* d_keys_values, void* dqkv) {
  const char* what = "join_gradients";
  const std::int64_t elements = rows_of(s) * (query_width(s) + other_width(s));
  with_element(dtype, what, [&]<class T>(T) {
    join_rows<<<blocks_for(elements, what), kThreads, 0, stream>>>(rows_of(s), query_width(s), other_width(s),
                                                                   dq, d_keys_values, static_cast<T*>(dqkv));
  });
  check_launch(what);
}

}  // namespace rooflm::backends::cuda
