// Sums over rows. First stage: the blocks of a tile of columns share its rows. Second stage: their sums.
#include <algorithm>

#include "backends/cuda/kernels/column_sums.cuh"
#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kPartialLanes = 16;        // partial sums per step of a second-stage block
constexpr int kPartialCols = kWarp;      // columns of a second-stage block
constexpr std::int64_t kLeastRows = 32;  // least rows of a block
constexpr std::int64_t kMostWaves = 4;

template <class T>
__global__ void __launch_bounds__(kSumThreads, kSumBlocksPerMultiprocessor)
    sum_rows(std::int64_t rows, std::int64_t cols, bool aligned, const T* x, float* sums) {
  constexpr int kAhead = 16 / static_cast<int>(sizeof(T));
  sum_own_rows<kAhead>(
      rows, cols, aligned, sums,
      [=](std::int64_t at, std::int64_t end, bool whole) { return load_raw_pack(x, at, end, whole); },
      [](const RawPack<T>& raw, std::int64_t /*at*/, std::int64_t /*end*/, bool /*whole*/) {
        return unpack(raw);
      });
}

__global__ void __launch_bounds__(kPartialCols* kPartialLanes)
    sum_partials(std::int64_t count, const float* partials, SumTargets targets, bool accumulate) {
  const std::int64_t cols = targets.cols * targets.arrays;
  __shared__ float shared[kPartialLanes][kPartialCols];
  const std::int64_t col = std::int64_t{blockIdx.x} * kPartialCols + threadIdx.x;
  float sum = 0;
  if (col < cols) {
#pragma unroll 8
    for (std::int64_t p = threadIdx.y; p < count; p += kPartialLanes) sum += partials[p * cols + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  float total = 0;
#pragma unroll
  for (int lane = 0; lane < kPartialLanes; ++lane) total += shared[lane][threadIdx.x];
  const auto array = static_cast<int>(col / targets.cols);
  if (targets.out[array] == nullptr) return;
  float* to = targets.out[array] + (col - array * targets.cols);
  *to = accumulate ? *to + total : total;
}

}  // namespace

std::int64_t partial_count(std::int64_t rows, std::int64_t cols) {
  const std::int64_t tiles = ceil_div(cols, kSumTile);
  const std::int64_t wave = std::int64_t{kSumBlocksPerMultiprocessor} * multiprocessors();
  // A block more than a wave holds would run almost alone, when the others are done. The first number of
  // waves that whole sums fill by nine tenths will do.
  std::int64_t wanted = 1;
  for (std::int64_t waves = 1; waves <= kMostWaves; ++waves) {
    wanted = std::max<std::int64_t>(1, waves * wave / tiles);
    if (wanted * tiles * 10 >= waves * wave * 9) break;
  }
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, rows / kLeastRows));
}

void launch_bias_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                          const void* dy, float* db, bool accumulate, void* workspace) {
  const std::int64_t parts = partial_count(rows, cols);
  auto* partials = static_cast<float*>(workspace);
  with_element(dtype, "bias_backward", [&]<class T>(T) {
    const dim3 grid(grid_size(ceil_div(cols, kSumTile), "bias_backward"), static_cast<unsigned>(parts));
    const bool aligned = cols % kPack == 0 && are_aligned({dy});
    sum_rows<<<grid, dim3(kWarp, kSumLanes), 0, stream>>>(rows, cols, aligned, static_cast<const T*>(dy),
                                                          partials);
  });
  check_launch("bias_backward");
  launch_sum_partials(stream, parts, partials, {.cols = cols, .out = {db}}, accumulate);
}

std::size_t bias_backward_workspace_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(partial_count(rows, cols) * cols) * sizeof(float);
}

void launch_sum_partials(Stream stream, std::int64_t count, const float* partials, const SumTargets& targets,
                         bool accumulate) {
  const unsigned blocks = grid_size(ceil_div(targets.cols * targets.arrays, kPartialCols), "sum_partials");
  sum_partials<<<blocks, dim3(kPartialCols, kPartialLanes), 0, stream>>>(count, partials, targets,
                                                                         accumulate);
  check_launch("sum_partials");
}

}  // namespace rooflm::backends::cuda
