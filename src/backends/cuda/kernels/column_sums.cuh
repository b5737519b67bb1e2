// First stage of sums over rows: the blocks of a tile of columns share its rows.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {

constexpr int kSumLanes = 8;             // rows per step of a block
constexpr int kSumTile = kWarp * kPack;  // columns of a block
constexpr int kSumThreads = kWarp * kSumLanes;
constexpr int kSumBlocksPerMultiprocessor = 4;
static_assert(kSumTile == kSumThreads, "every thread finishes one column");

/// Adds up, in order, what the lanes of a block of dim3(kWarp, kSumLanes) have in `total` for the columns of
/// a tile, and calls store(c, sum) for each column c < cols.
template <class Store>
__device__ void sum_lanes(const Pack& total, unsigned tile, std::int64_t cols, const Store& store) {
  __shared__ float shared[kSumLanes][kSumTile];
#pragma unroll
  for (int i = 0; i < kPack; ++i) shared[threadIdx.y][threadIdx.x * kPack + i] = total[i];
  __syncthreads();
  const int own = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const std::int64_t own_col = std::int64_t{tile} * kSumTile + own;
  if (own_col >= cols) return;
  float sum = 0;
#pragma unroll
  for (int lane = 0; lane < kSumLanes; ++lane) sum += shared[lane][own];
  store(own_col, sum);
}

/// sums[blockIdx.y, c] = sum over the block's rows r of use(load(at, end), at, end), at = r * cols + c, added
/// in an order that depends on the sizes only. Blocks of dim3(kWarp, kSumLanes), grids of (tiles of columns,
/// number of sums); a block has every gridDim.y-th group of kSumLanes rows, the last ones first: what was
/// written just before is likely still in the L2 cache. `use` returns the elements from `at` to `end`, at
/// most kPack, and may store what it computes: it is called once for each of them. Both also get whether
/// these are a pack that can be accessed as one. If `is_aligned` all are, and `kAhead` rows are loaded before
/// the first of them is used.
template <int kAhead, class Load, class Use>
__device__ void sum_own_rows(std::int64_t rows, std::int64_t cols, bool is_aligned, float* sums,
                             const Load& load, const Use& use) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kSumTile + threadIdx.x * kPack;
  const std::int64_t step = std::int64_t{gridDim.y} * kSumLanes;
  std::int64_t r = ((rows - 1) / kSumLanes - blockIdx.y) * kSumLanes + threadIdx.y;
  if (r >= rows) r -= step;
  Pack total{};
  const auto add = [&](const Pack& pack) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) total[i] += pack[i];
  };
  if (is_aligned && col < cols) {  // no condition in the loop, so several loads are in flight
    const auto place = [&](int i) { return (r - i * step) * cols + col; };
    for (; r - (kAhead - 1) * step >= 0; r -= kAhead * step) {
      decltype(load(r, r, true)) ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ahead[i] = load(place(i), place(i) + kPack, true);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) add(use(ahead[i], place(i), place(i) + kPack, true));
    }
    for (; r >= 0; r -= step) {
      const auto raw = load(place(0), place(0) + kPack, true);
      add(use(raw, place(0), place(0) + kPack, true));
    }
  } else if (col < cols) {
    for (; r >= 0; r -= step) {
      const std::int64_t at = r * cols + col;
      const std::int64_t row_end = (r + 1) * cols;
      const std::int64_t end = row_end < at + kPack ? row_end : at + kPack;
      add(use(load(at, end, false), at, end, false));
    }
  }
  sum_lanes(total, blockIdx.x, cols, [=](std::int64_t c, float sum) { sums[blockIdx.y * cols + c] = sum; });
}

}  // namespace rooflm::backends::cuda
