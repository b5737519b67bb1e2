// Sums over rows. First stage: one block per tile of columns and chunk of rows. Second stage: over the
// chunks.
#include <algorithm>

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kLanes = 8;                // rows per step of a first-stage block
constexpr int kTile = kWarp * kPack;     // columns of a first-stage block
constexpr int kPartialLanes = 64;        // partial sums per step of a second-stage block
constexpr int kPartialCols = 16;         // columns of a second-stage block
constexpr std::int64_t kLeastRows = 32;  // least rows per chunk
constexpr std::int64_t kBlocksPerMultiprocessor = 6;

/// Number of chunks that gives every multiprocessor its blocks.
std::int64_t chunks_of(std::int64_t rows, std::int64_t cols) {
  const std::int64_t tiles = ceil_div(cols, kTile);
  const std::int64_t wanted = ceil_div(kBlocksPerMultiprocessor * multiprocessors(), tiles);
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, rows / kLeastRows));
}

template <class T>
__global__ void __launch_bounds__(kWarp* kLanes)
    sum_rows(std::int64_t rows, std::int64_t cols, std::int64_t chunk, bool aligned, const T* x,
             float* sums) {
  __shared__ float shared[kLanes][kTile];
  const std::int64_t col = std::int64_t{blockIdx.x} * kTile + threadIdx.x * kPack;
  const std::int64_t first = blockIdx.y * chunk;
  const std::int64_t end = first + chunk < rows ? first + chunk : rows;
  Pack total{};
  const auto add = [&](const Pack& pack) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) total[i] += pack[i];
  };
  if (aligned && col < cols) {  // no condition in the loop, so several loads are in flight
#pragma unroll 8
    for (std::int64_t r = first + threadIdx.y; r < end; r += kLanes) add(load_whole(x + r * cols + col));
  } else {
    for (std::int64_t r = first + threadIdx.y; r < end; r += kLanes) {
      add(load_pack(x + r * cols, col, cols, false));
    }
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) shared[threadIdx.y][threadIdx.x * kPack + i] = total[i];
  __syncthreads();
  const int own = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const std::int64_t own_col = std::int64_t{blockIdx.x} * kTile + own;
  if (own_col >= cols) return;
  float sum = 0;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) sum += shared[lane][own];
  sums[blockIdx.y * cols + own_col] = sum;
}
static_assert(kTile == kWarp * kLanes, "every thread finishes one column");

__global__ void __launch_bounds__(kPartialCols* kPartialLanes)
    sum_partials(std::int64_t count, std::int64_t cols, const float* partials, std::int64_t split, float* out,
                 float* rest, bool accumulate) {
  __shared__ float shared[kPartialLanes][kPartialCols + 1];
  const std::int64_t col = std::int64_t{blockIdx.x} * kPartialCols + threadIdx.x;
  float sum = 0;
  if (col < cols) {
#pragma unroll 8
    for (std::int64_t p = threadIdx.y; p < count; p += kPartialLanes) sum += partials[p * cols + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // One warp finishes each column: the first kPartialCols warps.
  const int own = static_cast<int>(threadIdx.y * kPartialCols + threadIdx.x);
  const int lane = own % kWarp;
  const int own_col = own / kWarp;
  if (own_col >= kPartialCols) return;
  const float total = warp_sum(shared[lane][own_col] + shared[lane + kWarp][own_col]);
  const std::int64_t at = std::int64_t{blockIdx.x} * kPartialCols + own_col;
  if (lane > 0 || at >= cols) return;
  float* to = at < split ? out + at : rest + (at - split);
  *to = accumulate ? *to + total : total;
}
static_assert(kPartialLanes == 2 * kWarp, "a warp adds up two lanes' sums each");

}  // namespace

void launch_bias_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                          const void* dy, float* db, bool accumulate, void* workspace) {
  const std::int64_t chunks = chunks_of(rows, cols);
  auto* partials = static_cast<float*>(workspace);
  with_element(dtype, "bias_backward", [&]<class T>(T) {
    const dim3 grid(grid_size(ceil_div(cols, kTile), "bias_backward"), static_cast<unsigned>(chunks));
    const bool aligned = cols % kPack == 0 && are_aligned({dy});
    sum_rows<<<grid, dim3(kWarp, kLanes), 0, stream>>>(rows, cols, ceil_div(rows, chunks), aligned,
                                                       static_cast<const T*>(dy), partials);
  });
  check_launch("bias_backward");
  launch_sum_partials(stream, chunks, cols, partials, cols, db, nullptr, accumulate);
}

std::size_t bias_backward_workspace_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(chunks_of(rows, cols) * cols) * sizeof(float);
}

void launch_sum_partials(Stream stream, std::int64_t count, std::int64_t cols, const float* partials,
                         std::int64_t split, float* out, float* rest, bool accumulate) {
  const unsigned blocks = grid_size(ceil_div(cols, kPartialCols), "sum_partials");
  sum_partials<<<blocks, dim3(kPartialCols, kPartialLanes), 0, stream>>>(count, cols, partials, split, out,
                                                                         rest, accumulate);
  check_launch("sum_partials");
}

}  // namespace rooflm::backends::cuda
