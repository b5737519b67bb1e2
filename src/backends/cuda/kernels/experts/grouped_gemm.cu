// Matmuls of experts for all dtypes, GPUs and sizes: tiles in shared memory, sums in fp32 registers. Where
// they can, launchers take the kernels of grouped_gemm_sm90.cu.
#include "backends/cuda/kernels/experts/expert_tiles.cuh"
#include "backends/cuda/kernels/experts/grouped_gemm.h"
#include "backends/cuda/kernels/experts/grouped_gemm_sm90.h"
#include "backends/cuda/kernels/half_pointer.cuh"
#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kTile = 64;  // rows and columns of a block's tile
constexpr int kDepth = 16;
constexpr int kSide = 16;  // threads
constexpr int kEach = kTile / kSide;
constexpr int kThreads = kSide * kSide;

/// A factor as [rows of the tile's side, depth]; one of the two strides is 1.
template <class Pointer>
struct Side {
  Pointer from;
  std::int64_t stride, depth_stride;
  std::int64_t extent;  // from `from` on

  /// kDepth steps of k from `k` on to shared memory; zeros beyond the extent and `depth`.
  __device__ void load(float (&tile)[kDepth][kTile + 1], std::int64_t k, std::int64_t depth) const {
    const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
      const int index = thread + i * kThreads;
      const int row = depth_stride == 1 ? index / kDepth : index % kTile;
      const int step = depth_stride == 1 ? index % kDepth : index / kTile;
      const bool exists = row < extent && k + step < depth;
      tile[step][row] = exists ? from[row * stride + (k + step) * depth_stride] : 0.0F;
    }
  }
};

struct TileSums {
  float v[kEach][kEach] = {};
};

/// sums[i][j] of rows thread / kSide + i kSide and columns thread % kSide + j kSide.
template <class Pointer>
__device__ void multiply_tile(TileSums& sums, const Side<Pointer>& a, const Side<Pointer>& b,
                              std::int64_t depth) {
  __shared__ float left[kDepth][kTile + 1];
  __shared__ float right[kDepth][kTile + 1];
  const int row = static_cast<int>(threadIdx.x) / kSide;
  const int col = static_cast<int>(threadIdx.x) % kSide;
  for (std::int64_t k = 0; k < depth; k += kDepth) {
    a.load(left, k, depth);
    b.load(right, k, depth);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      float of_a[kEach], of_b[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        of_a[i] = left[step][row + i * kSide];
        of_b[i] = right[step][col + i * kSide];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums.v[i][j] += of_a[i] * of_b[j];
      }
    }
    __syncthreads();
  }
}

/// `c`: the tile's first element, of which rows x cols exist.
template <class To>
__device__ void store_tile(const TileSums& sums, To c, std::int64_t stride, std::int64_t rows,
                           std::int64_t cols, bool accumulate) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int row = static_cast<int>(threadIdx.x) / kSide + i * kSide;
      const int col = static_cast<int>(threadIdx.x) % kSide + j * kSide;
      if (row >= rows || col >= cols) continue;
      const std::int64_t at = row * stride + col;
      store_element(c, at, accumulate ? sums.v[i][j] + c[at] : sums.v[i][j]);
    }
  }
}

/// Block (x, y): the columns of tile x, the rows of expert tile y.
template <class From, class To>
__global__ void __launch_bounds__(kThreads) grouped_matmul(GroupedMatmul g, From a, From b, To c) {
  const ExpertTile tile =
      find_expert_tile<kTile>(g.offsets, static_cast<int>(g.experts), static_cast<int>(blockIdx.y));
  if (tile.expert < 0) return;
  const std::int64_t col = std::int64_t{blockIdx.x} * kTile;
  const From weights = b + tile.expert * g.n * g.k;
  const Side<From> left{a + tile.row * g.k, g.k, 1, tile.end - tile.row};
  const Side<From> right = g.trans_b ? Side<From>{weights + col * g.k, g.k, 1, g.n - col}
                                     : Side<From>{weights + col, 1, g.n, g.n - col};
  TileSums sums;
  multiply_tile(sums, left, right, g.k);
  store_tile(sums, c + (tile.row * g.n + col), g.n, left.extent, right.extent, false);
}

/// Block (x, y): tile x of expert y.
template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    grouped_matmul_weight(GroupedMatmulWeight g, From a, From b, To c) {
  const std::int64_t expert = blockIdx.y;
  const std::int64_t first = g.offsets[expert];
  const std::int64_t rows = g.offsets[expert + 1] - first;
  if (rows == 0 && g.accumulate) return;
  const std::int64_t cols = (g.n + kTile - 1) / kTile;
  const std::int64_t row = blockIdx.x / cols * kTile;
  const std::int64_t col = blockIdx.x % cols * kTile;
  const Side<From> left{a + (first * g.m + row), 1, g.m, g.m - row};
  const Side<From> right{b + (first * g.n + col), 1, g.n, g.n - col};
  TileSums sums;
  multiply_tile(sums, left, right, rows);
  store_tile(sums, c + ((expert * g.m + row) * g.n + col), g.n, left.extent, right.extent, g.accumulate);
}

/// A grid's second dimension.
unsigned second_size(std::int64_t blocks, const char* what) {
  constexpr std::int64_t kMost = 65535;
  if (blocks > kMost) throw core::Unavailable(std::string(what) + " on cuda: too many rows or experts");
  return static_cast<unsigned>(blocks);
}

/// Calls launch with functions that make pointers of factors and of results.
template <class Launch>
void with_grouped_pointers(core::DType factors, core::DType result, const char* what, Launch&& launch) {
  with_pointers(factors, what, [&](auto from, auto /*to*/) {
    with_pointers(result, what, [&](auto /*from*/, auto to) { launch(from, to); });
  });
}

}  // namespace

void launch_grouped_matmul(Stream stream, const GroupedMatmul& g) {
  constexpr const char* kWhat = "grouped_matmul";
  if (g.rows == 0 || launch_grouped_matmul_sm90(stream, g)) return;
  const dim3 blocks(grid_size(ceil_div(g.n, kTile), kWhat),
                    second_size(most_expert_tiles(g.rows, g.experts, kTile), kWhat));
  with_grouped_pointers(g.factors, g.result, kWhat, [&](auto from, auto to) {
    grouped_matmul<<<blocks, kThreads, 0, stream>>>(g, from(g.a), from(g.b), to(g.c));
  });
  check_launch(kWhat);
}

void launch_grouped_matmul_weight(Stream stream, const GroupedMatmulWeight& g) {
  constexpr const char* kWhat = "grouped_matmul_weight";
  if (launch_grouped_matmul_weight_sm90(stream, g)) return;
  const dim3 blocks(grid_size(ceil_div(g.m, kTile) * ceil_div(g.n, kTile), kWhat),
                    second_size(g.experts, kWhat));
  with_grouped_pointers(g.factors, g.result, kWhat, [&](auto from, auto to) {
    grouped_matmul_weight<<<blocks, kThreads, 0, stream>>>(g, from(g.a), from(g.b), to(g.c));
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
