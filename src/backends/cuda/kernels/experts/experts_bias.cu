// Biases of experts, the biases that balance their loads, and gates of whole rows.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/experts/experts.h"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kSumRows = 16;  // that a block adds at a time
constexpr int kBiasThreads = 256;
constexpr int kGateThreads = 128;

/// The expert of a row: the last one that begins at it or before and has rows.
__device__ int expert_of(std::int64_t row, int experts, const std::int32_t* offsets) {
  int first = 0;
  int count = experts;
  while (count > 0) {  // the first expert that ends behind the row
    const int half = count / 2;
    if (offsets[first + half + 1] <= row) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

/// Rows behind those of all experts are left alone.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    grouped_bias_add(int experts, std::int64_t cols, bool aligned, const T* x, const float* bias,
                     const std::int32_t* offsets, T* y) {
  const Place at(own_pack(), cols);
  if (at.row >= offsets[experts]) return;
  const std::int64_t expert = expert_of(at.row, experts, offsets);
  Pack sum = load_pack(x + at.row * cols, at.col, cols, aligned);
  const Pack own = load_pack(bias + expert * cols, at.col, cols, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum[i] += own[i];
  store_pack(y + at.row * cols, at.col, cols, aligned, sum);
}

/// Block (tile of columns, expert): a thread adds every kSumRows-th row of a column.
template <class T>
__global__ void __launch_bounds__(kWarp* kSumRows)
    grouped_bias_backward(std::int64_t cols, const T* dy, const std::int32_t* offsets, float* db,
                          bool accumulate) {
  __shared__ float sums[kSumRows][kWarp];
  const std::int64_t expert = blockIdx.y;
  const std::int64_t col = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (col < cols) {
#pragma unroll 4
    for (std::int64_t r = offsets[expert] + threadIdx.y; r < offsets[expert + 1]; r += kSumRows)
      sum += to_float(dy[r * cols + col]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  float total = accumulate ? db[expert * cols + col] : 0.0F;
  for (int i = 0; i < kSumRows; ++i) total += sums[i][threadIdx.x];
  db[expert * cols + col] = total;
}

__global__ void count_offsets(int experts, const std::int32_t* offsets, std::int64_t* counts,
                              bool accumulate) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kBiasThreads)
    counts[e] = (accumulate ? counts[e] : 0) + offsets[e + 1] - offsets[e];
}

/// One block.
__global__ void __launch_bounds__(kBiasThreads)
    balance_bias(int experts, float rate, const std::int64_t* counts, const float* bias, float* to) {
  long long all = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kBiasThreads) all += counts[e];
  all = block_sum(all);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kBiasThreads) {
    const long long over = counts[e] * experts - all;
    to[e] = bias[e] + (over > 0 ? -rate : over < 0 ? rate : 0.0F);
  }
}

/// A block for each row.
template <class T>
__global__ void __launch_bounds__(kGateThreads)
    gate_rows(std::int64_t cols, bool aligned, const T* x, const T* gate, T* y) {
  const std::int64_t row = blockIdx.x;
  const float s = 1.0F / (1.0F + expf(-to_float(gate[row])));
  for (std::int64_t i = threadIdx.x * std::int64_t{kPack}; i < cols; i += kGateThreads * kPack) {
    Pack pack = load_pack(x + row * cols, i, cols, aligned);
#pragma unroll
    for (int j = 0; j < kPack; ++j) pack[j] *= s;
    store_pack(y + row * cols, i, cols, aligned, pack);
  }
}

template <class T>
__global__ void __launch_bounds__(kGateThreads)
    gate_rows_backward(std::int64_t cols, bool aligned, const T* dy, const T* x, const T* gate, T* dx,
                       T* dgate) {
  const std::int64_t row = blockIdx.x;
  const float s = 1.0F / (1.0F + expf(-to_float(gate[row])));
  float dot = 0;
  for (std::int64_t i = threadIdx.x * std::int64_t{kPack}; i < cols; i += kGateThreads * kPack) {
    Pack d = load_pack(dy + row * cols, i, cols, aligned);
    const Pack own = load_pack(x + row * cols, i, cols, aligned);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      dot += d[j] * own[j];
      d[j] *= s;
    }
    store_pack(dx + row * cols, i, cols, aligned, d);
  }
  dot = block_sum(dot);
  if (threadIdx.x == 0) dgate[row] = from_float<T>(s * (1.0F - s) * dot);
}

}  // namespace

void launch_grouped_bias_add(Stream stream, core::DType dtype, std::int64_t experts, std::int64_t rows,
                             std::int64_t cols, const void* x, const float* bias, const std::int32_t* offsets,
                             void* y) {
  constexpr const char* kWhat = "grouped_bias_add";
  if (rows == 0) return;
  const bool aligned = cols % kPack == 0 && are_aligned({x, bias, y});
  with_element(dtype, kWhat, [&]<class T>(T) {
    grouped_bias_add<T><<<row_blocks(rows, cols, kWhat), kElementThreads, 0, stream>>>(
        static_cast<int>(experts), cols, aligned, static_cast<const T*>(x), bias, offsets,
        static_cast<T*>(y));
  });
  check_launch(kWhat);
}

void launch_grouped_bias_backward(Stream stream, core::DType dtype, std::int64_t experts, std::int64_t cols,
                                  const void* dy, const std::int32_t* offsets, float* db, bool accumulate) {
  constexpr const char* kWhat = "grouped_bias_backward";
  const dim3 grid(grid_size(ceil_div(cols, kWarp), kWhat), static_cast<unsigned>(experts));
  with_element(dtype, kWhat, [&]<class T>(T) {
    grouped_bias_backward<T><<<grid, dim3(kWarp, kSumRows), 0, stream>>>(cols, static_cast<const T*>(dy),
                                                                         offsets, db, accumulate);
  });
  check_launch(kWhat);
}

void launch_count_offsets(Stream stream, std::int64_t experts, const std::int32_t* offsets,
                          std::int64_t* counts, bool accumulate) {
  count_offsets<<<1, kBiasThreads, 0, stream>>>(static_cast<int>(experts), offsets, counts, accumulate);
  check_launch("balance_bias");
}

void launch_balance_bias(Stream stream, std::int64_t experts, float rate, const std::int64_t* counts,
                         const float* bias, float* to) {
  balance_bias<<<1, kBiasThreads, 0, stream>>>(static_cast<int>(experts), rate, counts, bias, to);
  check_launch("balance_bias");
}

void launch_gate_rows(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols, const void* x,
                      const void* gate, void* y) {
  constexpr const char* kWhat = "gate_rows";
  if (rows == 0) return;
  const bool aligned = cols % kPack == 0 && are_aligned({x, y});
  with_element(dtype, kWhat, [&]<class T>(T) {
    gate_rows<T><<<grid_size(rows, kWhat), kGateThreads, 0, stream>>>(
        cols, aligned, static_cast<const T*>(x), static_cast<const T*>(gate), static_cast<T*>(y));
  });
  check_launch(kWhat);
}

void launch_gate_rows_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                               const void* dy, const void* x, const void* gate, void* dx, void* dgate) {
  constexpr const char* kWhat = "gate_rows_backward";
  if (rows == 0) return;
  const bool aligned = cols % kPack == 0 && are_aligned({dy, x, dx});
  with_element(dtype, kWhat, [&]<class T>(T) {
    gate_rows_backward<T><<<grid_size(rows, kWhat), kGateThreads, 0, stream>>>(
        cols, aligned, static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<const T*>(gate),
        static_cast<T*>(dx), static_cast<T*>(dgate));
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
