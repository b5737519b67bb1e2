// Attention for fp32 and for head sizes that tensor cores do not take: a warp has a few rows of one side, its
// lanes take one row each of the other side's tile. attention_simple.cu has the kernels.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/half_pointer.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {

constexpr int kOwnRows = 4;  // of a warp
constexpr int kRowWarps = 4;
constexpr int kBlockRows = kOwnRows * kRowWarps;
constexpr int kTileRows = 32;
constexpr int kRowThreads = 32 * kRowWarps;

/// Rows [first, first + kRows) of a matrix of `rows` rows, `from_stride` apart, as fp32; zeros beyond the
/// end.
template <int kRows, class Pointer>
__device__ void copy_rows(float* to, int to_stride, Pointer from, std::int64_t from_stride,
                          std::int64_t first, std::int64_t rows, int dim) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * dim; i += kRowThreads) {
    const int row = i / dim;
    const int col = i - row * dim;
    to[row * to_stride + col] = first + row < rows ? from[(first + row) * from_stride + col] : 0.0F;
  }
}

/// dots[r] = own row r times the lane's row of the tile. Rows of a tile are dim + 1 apart: no two lanes read
/// the same bank.
__device__ inline void multiply_rows(float (&dots)[kOwnRows], const float* own, const float* tile, int dim) {
  const float* row = tile + threadIdx.x % kWarp * (dim + 1);
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) dots[r] = 0;
#pragma unroll 4
  for (int d = 0; d < dim; ++d) {
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) dots[r] = fmaf(own[r * dim + d], row[d], dots[r]);
  }
}

/// sums[r][..] += sum over lanes of weights[r] times the lane's row of the tile; slot i of a lane is column
/// lane + 32 i.
template <int kSlots>
__device__ void add_rows(float (&sums)[kOwnRows][kSlots], const float (&weights)[kOwnRows], const float* tile,
                         int dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 4
  for (int j = 0; j < kTileRows; ++j) {
    const float* row = tile + j * (dim + 1);
    float values[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) values[i] = lane + kWarp * i < dim ? row[lane + kWarp * i] : 0.0F;
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const float weight = __shfl_sync(kAllLanes, weights[r], j);
#pragma unroll
      for (int i = 0; i < kSlots; ++i) sums[r][i] = fmaf(weight, values[i], sums[r][i]);
    }
  }
}

/// Writes the warp's rows, times scale[r], to rows [first, ..) of a matrix.
template <int kSlots, class Pointer>
__device__ void write_sums(const float (&sums)[kOwnRows][kSlots], const float (&scale)[kOwnRows], Pointer to,
                           std::int64_t stride, std::int64_t first, std::int64_t rows, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (first + r < rows && lane + kWarp * i < dim) {
        store_element(to, (first + r) * stride + lane + kWarp * i, sums[r][i] * scale[r]);
      }
    }
  }
}

}  // namespace rooflm::backends::cuda
