// Hopper's matrix instructions: m64n64k16 by a warp group of 128 threads on tiles with the 128-byte swizzle.
//
// A tile is panels of 64 columns; a panel is rows of 128 bytes, of which chunk c of 16 bytes lies at place
// c ^ (row % 8). Panels begin at multiples of 1024 bytes. Sums lie over the lanes of each of the four warps
// as those of mma.cuh, warp w having rows 16 w on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "backends/cuda/kernels/mma.cuh"

namespace rooflm::backends::cuda {

/// Whether this is the code of an architecture that has them: sm_90a.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kHasWarpGroups = true;
#else
constexpr bool kHasWarpGroups = false;
#endif

/// Whether the current device, and this build, have them. Throws std::runtime_error if the driver does not
/// say.
inline bool has_warp_groups() {
  constexpr int kHopper = 9;
  if (ROOFLM_SM90A == 0) return false;
  int device = 0;
  int major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("asking for the architecture: ") + cudaGetErrorString(error));
  }
  return major == kHopper;
}

constexpr int kPanelCols = 64;
constexpr int kPanelRowBytes = 128;
constexpr int kPanelAlignment = 1024;

/// Panels of a tile; of the last one a multiple of 16 columns is used.
template <int kDim>
constexpr int kPanels = (kDim + kPanelCols - 1) / kPanelCols;

template <int kRows>
constexpr int kPanelBytes = kRows* kPanelRowBytes;

/// The first place for a panel at or behind `raw`.
__device__ inline unsigned char* align_panels(unsigned char* raw) {
  return raw + (kPanelAlignment - shared_address(raw) % kPanelAlignment) % kPanelAlignment;
}

/// The same as copy_tile, to panels; kDim is what rows have. What depends on the thread alone is computed
/// once.
template <int kRows, int kDim, int kThreads>
class PanelCopy {
 public:
  __device__ explicit PanelCopy(std::int64_t stride)
      : row_(static_cast<int>(threadIdx.x) / kPlaces),
        own_(row_ * static_cast<int>(stride) + col() * 8),
        step_(kStep * static_cast<int>(stride)),
        to_(col() / 8 * kPanelBytes<kRows> + row_ * kPanelRowBytes + (col() % 8 ^ row_ % 8) * 16) {}

  /// `from`: the first row; rows from `rows` on become zeros.
  __device__ void operator()(unsigned char* tile, const __nv_bfloat16* from, std::int64_t rows) const {
    if (kPlaces != kDim / 8 && col() >= kDim / 8) return;
    const unsigned to = shared_address(tile) + to_;
    const auto left = static_cast<int>(min(rows, std::int64_t{kRows})) - row_;
    const __nv_bfloat16* source = from + own_;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i, source += step_) {
      copy_16(to + i * kStep * kPanelRowBytes, source, i * kStep < left);
    }
  }

 private:
  static constexpr int kPlaces =
      kDim <= kPanelCols ? 8 : 16;                  // chunks of 16 bytes in a row, as a power of two
  static constexpr int kStep = kThreads / kPlaces;  // rows
  static_assert(kDim <= 2 * kPanelCols && kStep % 8 == 0 && kRows % kStep == 0,
                "a thread's chunks are swizzled alike");

  static __device__ int col() { return static_cast<int>(threadIdx.x) % kPlaces; }

  int row_, own_, step_;  // the last two in elements
  unsigned to_;           // bytes
};

/// Makes what this thread has written to shared memory visible to matrix instructions; a barrier comes after
/// it.
__device__ inline void publish_to_matrix_unit() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// What the instructions call a matrix descriptor: address, 1024 bytes between groups of eight rows, swizzle.
__device__ inline std::uint64_t describe(const unsigned char* panel) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kGroups = std::uint64_t{1024 >> 4} << 32;
  constexpr std::uint64_t kUnused = std::uint64_t{1} << 16;
  return kSwizzle128 | kGroups | kUnused | ((shared_address(panel) & 0x3ffffU) >> 4);
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// The descriptor of what lies `bytes` behind; no tile crosses the end of a block's shared memory.
__device__ inline std::uint64_t behind(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<unsigned>(bytes >> 4);
}

/// What was issued since the last time is a group of its own.
__device__ inline void group_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until no more than the last kGroups groups are under way.
template <int kGroups>
__device__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

/// Waits for all products.
__device__ inline void finish_products() {
  group_products();
  await_products<0>();
}

/// Before begin_products, for each sum: it is complete. After finish_products: nothing that reads it is moved
/// before.
template <int kM, int kN>
__device__ void receive(Sums<kM, kN>& sums) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums.v[0][n][i])::"memory");
  }
}

/// Before begin_products, for each left factor in registers: it is complete before the first product.
template <int kK>
__device__ void settle(Factor<1, kK>& factor) {
#pragma unroll
  for (int k = 0; k < kK; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(factor.v[0][k][i])::"memory");
  }
}

/// c[0..32) += a b^T, or = without kAdds; 16 columns of both: a 64 rows, b 64 rows.
template <bool kAdds>
__device__ void issue_transposed(float* c, std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
        "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "l"(a), "l"(b), "n"(kAdds ? 1 : 0));
}

/// c[0..32) += a b, a in registers, b 16 rows of 64 columns.
__device__ inline void issue_product(float* c, const unsigned (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
        "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// The same for b of 16 columns: c[0..8).
__device__ inline void issue_narrow_product(float* c, const unsigned (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, p, 1, 1, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// c = a b^T: a 64 rows of a tile of kRowsA (from row `row` on, a multiple of 64), b a tile of 64 rows.
template <int kDim, int kRowsA>
__device__ void issue_tile_transposed(Sums<1, 8>& c, const unsigned char* a, int row,
                                      const unsigned char* b) {
  const std::uint64_t rows = describe(a + row * kPanelRowBytes);
  const std::uint64_t columns = describe(b);
  issue_transposed<false>(&c.v[0][0][0], rows, columns);
#pragma unroll
  for (int k = 16; k < kDim; k += 16) {
    const int panel = k / kPanelCols;
    const int bytes = k % kPanelCols * 2;
    issue_transposed<true>(&c.v[0][0][0], behind(rows, panel * kPanelBytes<kRowsA> + bytes),
                           behind(columns, panel * kPanelBytes<64> + bytes));
  }
}

/// c += a b: a in registers, b a tile of 64 rows.
template <int kDim>
__device__ void issue_tile(Sums<1, kDim / 8>& c, const Factor<1, 4>& a, const unsigned char* b) {
  const std::uint64_t tile = describe(b);
#pragma unroll
  for (int panel = 0; panel < kPanels<kDim>; ++panel) {
    constexpr int kLastCols = kDim - (kPanels<kDim> - 1) * kPanelCols;
    static_assert(kLastCols == kPanelCols || kLastCols == 16, "there are instructions for these");
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint64_t rows = behind(tile, panel * kPanelBytes<64> + k * 16 * kPanelRowBytes);
      if (kLastCols == kPanelCols || panel + 1 < kPanels<kDim>) {
        issue_product(&c.v[0][panel * 8][0], a.v[0][k], rows);
      } else {
        issue_narrow_product(&c.v[0][panel * 8][0], a.v[0][k], rows);
      }
    }
  }
}

}  // namespace rooflm::backends::cuda
