// Tensor cores through mma.sync m16n8k16 on bf16 tiles in shared memory, and the copies that fill the tiles.
//
// A tile is rows of kDim elements with a stride of kDim + 8: eight rows that ldmatrix reads at once then lie
// in different banks for every kDim that is a multiple of 16.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace rooflm::backends::cuda {

template <int kDim>
constexpr int kTileStride = kDim + 8;

/// Bytes of a tile.
template <int kRows, int kDim>
constexpr int kTileBytes = kRows* kTileStride<kDim>* static_cast<int>(sizeof(__nv_bfloat16));

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes to shared memory asynchronously; writes zeros unless `exists`.
__device__ inline void copy_16(void* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0));
}
__device__ inline void copy_4(void* to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 4 : 0));
}
/// Waits for this thread's copies.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Rows [first, first + kRows) of a matrix of `rows` rows of `dim` <= kDim elements, `stride` apart, to a
/// tile; zeros beyond both. A multiple of 8, `dim` and the alignment of rows to 16 bytes are the caller's
/// business.
template <int kRows, int kDim, int kThreads>
__device__ void copy_tile(__nv_bfloat16* tile, const __nv_bfloat16* from, std::int64_t stride,
                          std::int64_t first, std::int64_t rows, int dim) {
  constexpr int kChunks = kDim / 8;
#pragma unroll
  for (int i = 0; i < kRows * kChunks; i += kThreads) {
    const int chunk = i + static_cast<int>(threadIdx.x);
    if (kRows * kChunks % kThreads != 0 && chunk >= kRows * kChunks) break;
    const int row = chunk / kChunks;
    const int col = chunk % kChunks * 8;
    const bool exists = first + row < rows && col < dim;
    const __nv_bfloat16* source = exists ? from + (first + row) * stride + col : from;
    copy_16(tile + row * kTileStride<kDim> + col, source, exists);
  }
}

/// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(unsigned (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c += a b: a 16 x 16, b 16 x 8. Lane l holds of c rows l / 4 (c[0], c[1]) and l / 4 + 8 (c[2], c[3]),
/// columns 2 (l % 4) and the next.
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// One warp's sums: kM by kN tiles of 16 x 8.
template <int kM, int kN>
struct Sums {
  float v[kM][kN][4];
};

/// One warp's left factor in registers: kM by kK tiles of 16 x 16.
template <int kM, int kK>
struct Factor {
  unsigned v[kM][kK][4];

  /// From rows of a tile.
  template <int kDim>
  __device__ void load(const __nv_bfloat16* rows) {
    static_assert(kK * 16 <= kDim);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const __nv_bfloat16* own = rows + lane % 16 * kTileStride<kDim> + lane / 16 * 8;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < kK; ++k) load_matrices(v[m][k], own + m * 16 * kTileStride<kDim> + k * 16);
    }
  }
  /// From sums, rounded to bf16: the lanes' elements are those that a left factor wants.
  __device__ void round(const Sums<kM, 2 * kK>& sums) {
    const auto pair = [](float low, float high) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<const unsigned*>(&both);
    };
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < kK; ++k) {
        const float(&left)[4] = sums.v[m][2 * k];
        const float(&right)[4] = sums.v[m][2 * k + 1];
        v[m][k][0] = pair(left[0], left[1]);
        v[m][k][1] = pair(left[2], left[3]);
        v[m][k][2] = pair(right[0], right[1]);
        v[m][k][3] = pair(right[2], right[3]);
      }
    }
  }
};

/// Columns [16 k, 16 k + 16) of the left factor times those of b^T; b: 8 kN rows of a tile.
template <int kDim, int kM, int kN>
__device__ void add_step_transposed(Sums<kM, kN>& c, const unsigned (&a)[kM][4], const __nv_bfloat16* b,
                                    int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const __nv_bfloat16* own = b + (lane / 16 * 8 + lane % 8) * kTileStride<kDim> + lane / 8 % 2 * 8 + k * 16;
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    unsigned factor[4];
    load_matrices(factor, own + n * 8 * kTileStride<kDim>);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      multiply(c.v[m][n], a[m], factor[0], factor[1]);
      multiply(c.v[m][n + 1], a[m], factor[2], factor[3]);
    }
  }
}

/// c += a b^T: a 16 kM rows and b 8 kN rows of tiles.
template <int kDim, int kM, int kN>
__device__ void add_product_transposed(Sums<kM, kN>& c, const __nv_bfloat16* a, const __nv_bfloat16* b) {
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    Factor<kM, 1> column;
    column.template load<kDim>(a + k * 16);
    unsigned own[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) own[m][i] = column.v[m][0][i];
    }
    add_step_transposed<kDim>(c, own, b, k);
  }
}

/// The same with a in registers.
template <int kDim, int kM, int kN>
__device__ void add_product_transposed(Sums<kM, kN>& c, const Factor<kM, kDim / 16>& a,
                                       const __nv_bfloat16* b) {
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    unsigned own[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) own[m][i] = a.v[m][k][i];
    }
    add_step_transposed<kDim>(c, own, b, k);
  }
}

/// c += a b: b 16 kK rows of a tile.
template <int kDim, int kM, int kK>
__device__ void add_product(Sums<kM, kDim / 8>& c, const Factor<kM, kK>& a, const __nv_bfloat16* b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const __nv_bfloat16* own = b + lane % 16 * kTileStride<kDim> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kK; ++k) {
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      unsigned factor[4];
      load_matrices_transposed(factor, own + k * 16 * kTileStride<kDim> + n * 8);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply(c.v[m][n], a.v[m][k], factor[0], factor[1]);
        multiply(c.v[m][n + 1], a.v[m][k], factor[2], factor[3]);
      }
    }
  }
}

}  // namespace rooflm::backends::cuda
