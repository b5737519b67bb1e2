// What a warp of few_rows_gemm.cu loads, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/few_rows/codes.cuh"

namespace rooflm::backends::cuda {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = 8;  // rows of w
constexpr int kLanesOfRow = 4;

/// Whether elements that share a scale are fewer than a row.
template <DType kFormat>
constexpr bool has_groups = kFormat == DType::int4 || kFormat == DType::nf4;
template <DType kFormat>
constexpr bool has_row_scales = kFormat == DType::int8 || kFormat == DType::fp8_rows;
/// Elements of a row that a warp multiplies in a step: a load of each lane.
template <DType kFormat>
constexpr int kStep = kLanesOfRow* kPerLoad<kFormat>;
/// Steps whose loads are under way together.
template <DType kFormat>
constexpr int kAtOnce = has_groups<kFormat> ? 4 : 8;

__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int lane_of_row() { return static_cast<int>(threadIdx.x) % kLanesOfRow; }

struct Operands {
  int m, n, k;
  int tiles, steps;  // of w; of a row
  int sharers;       // warps that share a tile, a power of two
  const std::byte* w;
  const std::byte* scales;     // the plane after the codes
  const float* second_scales;  // nf4
  const float* scale_values;   // nf4
  const void* a;
  int a_stride;  // of a's rows, in shared memory where it fits
  const void* bias;
  bool bias_is_float, result_is_float;
  void* c;
};

/// Bytes that are read once. Lines of 128 bytes come to L2 as a whole: two loads of a lane read one.
__device__ inline uint4 load_once(const std::byte* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}
__device__ inline uint2 load_half_once(const std::byte* from) {
  uint2 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(from));
  return x;
}

/// The scales of a step, of the two rows of a tile that are a lane's columns of sums: numbers, or two codes.
template <DType kFormat>
struct StepScales {};
template <>
struct StepScales<DType::int4> {
  float lower, upper;
};
template <>
struct StepScales<DType::nf4> {
  unsigned lower, upper;
};

/// What a lane loads of kAtOnce steps of a tile, and that part of the work.
template <DType kFormat>
struct Batch {
  uint4 words[kAtOnce<kFormat>];
  StepScales<kFormat> scales[kAtOnce<kFormat>];

  /// Steps `first` and those behind it. Those that a row does not have are zeros.
  __device__ void load(const Operands& p, int tile, int first) {
    if (tile >= p.tiles) return;
    const int row = min(tile * kTileRows + lane_of_thread() / kLanesOfRow, p.n - 1);
    const std::byte* from = p.w + std::int64_t{row} * (p.k / kPerLoad<kFormat> * 16) +
                            first * (kLanesOfRow * 16) + lane_of_row() * (kFormat == DType::nf4 ? 8 : 16);
    if ((first + kAtOnce<kFormat>)*kStep<kFormat> <= p.k) {
#pragma unroll
      for (int i = 0; i < kAtOnce<kFormat>; ++i) words[i] = load_step(from + i * kLanesOfRow * 16);
    } else {
#pragma unroll
      for (int i = 0; i < kAtOnce<kFormat>; ++i) {
        const int column = (first + i) * kStep<kFormat> + lane_of_row() * kPerLoad<kFormat>;
        words[i] = {0, 0, 0, 0};
        if (column < p.k) words[i] = load_step(from + i * kLanesOfRow * 16);
      }
    }
    if constexpr (has_groups<kFormat>) load_scales(p, tile, first);
  }

 private:
  static __device__ uint4 load_step(const std::byte* from) {
    if constexpr (kFormat != DType::nf4) return load_once(from);
    const uint2 x = load_half_once(from);  // of a block of 64 elements, and of the next
    const uint2 y = load_half_once(from + 32);
    return {x.x, x.y, y.x, y.y};
  }
  __device__ void load_scales(const Operands& p, int tile, int first) {
    const int groups = p.k / (kFormat == DType::int4 ? 128 : 64);
    const int row = tile * kTileRows + 2 * lane_of_row();
    const std::int64_t lower = std::int64_t{min(row, p.n - 1)} * groups;
    const std::int64_t upper = std::int64_t{min(row + 1, p.n - 1)} * groups;
#pragma unroll
    for (int i = 0; i < kAtOnce<kFormat>; ++i) {
      const int step = min(first + i, p.steps - 1);
      if constexpr (kFormat == DType::int4) {
        const auto* plane = reinterpret_cast<const float*>(p.scales);
        scales[i] = {__ldg(plane + lower + step), __ldg(plane + upper + step)};
      } else {
        const auto* plane = reinterpret_cast<const unsigned short*>(p.scales);  // pairs of codes
        scales[i] = {__ldg(plane + lower / 2 + step), __ldg(plane + upper / 2 + step)};
      }
    }
  }
};

/// The batches of a warp, tile by tile.
struct Walk {
  int tile, batch;  // batches of all sharers are counted
  int stride, batches;

  template <int kCount>
  __device__ static Walk of(const Operands& p) {
    const int warp = warp_of_thread();
    const int at_once = kWarps / p.sharers;  // tiles of a block
    return {.tile = static_cast<int>(blockIdx.x) * at_once + warp / p.sharers,
            .batch = warp % p.sharers,
            .stride = static_cast<int>(gridDim.x) * at_once,
            .batches = (p.steps + kCount - 1) / kCount};
  }
  /// False at the end of a tile.
  __device__ bool advance(int sharers) {
    batch += sharers;
    if (batch < batches) return true;
    batch = warp_of_thread() % sharers;
    tile += stride;
    return false;
  }
};

}  // namespace rooflm::backends::cuda
