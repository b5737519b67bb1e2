// Tensor cores through mma.sync on tiles in shared memory, and the copies that fill the tiles: m16n8k16 on
// bf16 and fp16 (E = __nv_bfloat16, __half), m16n8k8 on tf32 (E = float, of which the unit reads the upper 19
// bits; SplitFloat, an fp32 number as two of tf32).
//
// A tile is rows of kDim elements that lie kDim and 16 bytes apart: eight rows that ldmatrix reads at once
// then lie in different banks for every kDim that is a multiple of 16 (8 of tf32).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// An fp32 number that is multiplied as the sum of two of tf32, of 11 bits each: of the four products the
/// smallest is left out, so that results are about as close as those of fp32 multiply-adds.
struct SplitFloat {
  float value;
};

/// Whether tensor cores take elements of four bytes, as tf32.
template <class E>
constexpr bool is_wide = sizeof(E) == sizeof(float);
template <class E>
constexpr bool is_split = std::is_same_v<E, SplitFloat>;

__device__ inline Pack load_whole(const SplitFloat* from) { return load_whole(&from->value); }

/// Elements of 16 bytes.
template <class E>
constexpr int kChunk = 16 / static_cast<int>(sizeof(E));

/// What one instruction adds up: columns of its left factor.
template <class E>
constexpr int kDepth = 2 * kChunk<E>;

template <int kDim, class E = __nv_bfloat16>
constexpr int kTileStride = kDim + kChunk<E>;

/// Bytes of a tile.
template <int kRows, int kDim, class E = __nv_bfloat16>
constexpr int kTileBytes = kRows* kTileStride<kDim, E>* static_cast<int>(sizeof(E));

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes to shared memory asynchronously; writes zeros unless `exists`.
__device__ inline void copy_16(unsigned to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0));
}
__device__ inline void copy_16(void* to, const void* from, bool exists) {
  copy_16(shared_address(to), from, exists);
}
__device__ inline void copy_4(void* to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 4 : 0));
}
/// Waits for this thread's copies.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Rows [first, first + kRows) of a matrix of `rows` rows of `dim` <= kDim elements, `stride` apart, to a
/// tile; zeros beyond both. Rows that begin at multiples of 16 bytes and are as many long are the caller's
/// business.
template <int kRows, int kDim, int kThreads, class E>
__device__ void copy_tile(E* tile, const E* from, std::int64_t stride, std::int64_t first, std::int64_t rows,
                          int dim) {
  constexpr int kChunks = kDim / kChunk<E>;
#pragma unroll
  for (int i = 0; i < kRows * kChunks; i += kThreads) {
    const int chunk = i + static_cast<int>(threadIdx.x);
    if (kRows * kChunks % kThreads != 0 && chunk >= kRows * kChunks) break;
    const int row = chunk / kChunks;
    const int col = chunk % kChunks * kChunk<E>;
    const bool exists = first + row < rows && col < dim;
    const E* source = exists ? from + (first + row) * stride + col : from;
    copy_16(tile + row * kTileStride<kDim, E> + col, source, exists);
  }
}

/// Four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8, and gets the
/// word l % 4 of row l / 4 of each.
__device__ inline void load_matrices(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c += a b: a 16 x kDepth, b kDepth x 8, of the type of the last argument. Lane l holds of c rows l / 4
/// (c[0], c[1]) and l / 4 + 8 (c[2], c[3]), columns 2 (l % 4) and the next.
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                const __nv_bfloat16* /*type*/) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                const __half* /*type*/) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                const float* /*type*/) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// x as tf32, rounded to the nearest; NaN beyond 2^114. Dekker's splitting (1971) in two instructions where
/// cvt.rna.tf32 takes four: 8193 x is rounded to a multiple of 2^13 units in the last place of x, and less
/// 8192 x that is x rounded to one.
__device__ inline float round_to_tf32(float x) { return fmaf(x, -8192.0F, __fmul_rn(x, 8193.0F)); }

/// The two parts of an fp32 number as tf32: rounded, and what is left, which the unit cuts off after 11 bits.
struct Tf32Parts {
  unsigned high, low;

  __device__ explicit Tf32Parts(unsigned word) {
    const float x = __uint_as_float(word);
    const float rounded = round_to_tf32(x);
    high = __float_as_uint(rounded);
    low = __float_as_uint(x - rounded);
  }
};

/// c[n] += a b[n] of kN right factors beside each other.
template <int kN, class E>
__device__ void multiply_all(float (*c)[4], const unsigned (&a)[4], const unsigned (&b)[kN][2],
                             const E* type) {
#pragma unroll
  for (int n = 0; n < kN; ++n) multiply(c[n], a, b[n][0], b[n][1], type);
}
/// Tensor cores truncate what they add up, so that each product is added to c in fp32, its small parts first.
/// Three products wait for each other, and those of other factors run meanwhile.
template <int kN>
__device__ void multiply_all(float (*c)[4], const unsigned (&a)[4], const unsigned (&b)[kN][2],
                             const SplitFloat* /*type*/) {
  const float* tf32 = nullptr;
  unsigned a_high[4], a_low[4], b_high[kN][2], b_low[kN][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Tf32Parts parts(a[i]);
    a_high[i] = parts.high;
    a_low[i] = parts.low;
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Tf32Parts parts(b[n][i]);
      b_high[n][i] = parts.high;
      b_low[n][i] = parts.low;
    }
  }
  float sum[kN][4] = {};
#pragma unroll
  for (int n = 0; n < kN; ++n) multiply(sum[n], a_low, b_high[n][0], b_high[n][1], tf32);
#pragma unroll
  for (int n = 0; n < kN; ++n) multiply(sum[n], a_high, b_low[n][0], b_low[n][1], tf32);
#pragma unroll
  for (int n = 0; n < kN; ++n) multiply(sum[n], a_high, b_high[n][0], b_high[n][1], tf32);
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] += sum[n][i];
  }
}

/// One warp's sums: kM by kN tiles of 16 x 8.
template <int kM, int kN>
struct Sums {
  float v[kM][kN][4];
};

/// f(m, n, i) for each sum of a thread.
template <int kM, int kN, class F>
__device__ void each_sum(F&& f) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) f(m, n, i);
    }
  }
}

/// One warp's left factor in registers: kM by kK tiles of 16 x kDepth.
template <int kM, int kK, class E = __nv_bfloat16>
struct Factor {
  unsigned v[kM][kK][4];

  /// From rows of a tile.
  template <int kDim>
  __device__ void load(const E* rows) {
    static_assert(kK * kDepth<E> <= kDim);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const E* own = rows + lane % 16 * kTileStride<kDim, E> + lane / 16 * kChunk<E>;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < kK; ++k) {
        load_matrices(v[m][k], own + m * 16 * kTileStride<kDim, E> + k * kDepth<E>);
      }
    }
  }
  /// From sums, rounded to E: the lanes' elements are those that a left factor wants. Of words they are so if
  /// column i of each eight stands for i / 2 + i % 2 * 4; add_product takes rows of the right factor in that
  /// order.
  __device__ void round(const Sums<kM, kDepth<E> / 8 * kK>& sums) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < kK; ++k) round_tile(v[m][k], sums.v[m] + k * (kDepth<E> / 8));
    }
  }

 private:
  static __device__ void round_tile(unsigned (&to)[4], const float (*from)[4]) {
    if constexpr (is_wide<E>) {
      const auto word = [](float x) { return __float_as_uint(is_split<E> ? x : round_to_tf32(x)); };
      to[0] = word(from[0][0]);
      to[1] = word(from[0][2]);
      to[2] = word(from[0][1]);
      to[3] = word(from[0][3]);
    } else {
      const auto pair = [](float low, float high) {
        return pack_pair(low, high, static_cast<const E*>(nullptr));
      };
      to[0] = pair(from[0][0], from[0][1]);
      to[1] = pair(from[0][2], from[0][3]);
      to[2] = pair(from[1][0], from[1][1]);
      to[3] = pair(from[1][2], from[1][3]);
    }
  }
};

/// Columns [kDepth k, kDepth k + kDepth) of the left factor times those of b^T; b: 8 kN rows of a tile.
template <int kDim, int kM, int kN, class E>
__device__ void add_step_transposed(Sums<kM, kN>& c, const Factor<kM, 1, E>& a, const E* b, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const E* own =
      b + (lane / 16 * 8 + lane % 8) * kTileStride<kDim, E> + lane / 8 % 2 * kChunk<E> + k * kDepth<E>;
  constexpr int kAtOnce = is_split<E> && kN % 4 == 0 ? 4 : 2;
#pragma unroll
  for (int n = 0; n < kN; n += kAtOnce) {
    unsigned factors[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 2) {
      unsigned four[4];
      load_matrices(four, own + (n + i) * 8 * kTileStride<kDim, E>);
      factors[i][0] = four[0];
      factors[i][1] = four[1];
      factors[i + 1][0] = four[2];
      factors[i + 1][1] = four[3];
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) multiply_all(c.v[m] + n, a.v[m][0], factors, b);
  }
}

/// c += a b^T: a 16 kM rows and b 8 kN rows of tiles.
template <int kDim, int kM, int kN, class E>
__device__ void add_product_transposed(Sums<kM, kN>& c, const E* a, const E* b) {
  constexpr int kUnrolled = is_split<E> ? 4 : kDim / kDepth<E>;  // registers do not hold more
#pragma unroll kUnrolled
  for (int k = 0; k < kDim / kDepth<E>; ++k) {
    Factor<kM, 1, E> column;
    column.template load<kDim>(a + k * kDepth<E>);
    add_step_transposed<kDim>(c, column, b, k);
  }
}

/// c += a b: b 16 kK rows of a tile.
template <int kDim, int kM, int kK, class E>
requires(!is_wide<E>) __device__
    void add_product(Sums<kM, kDim / 8>& c, const Factor<kM, kK, E>& a, const E* b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const E* own = b + lane % 16 * kTileStride<kDim> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kK; ++k) {
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      unsigned factor[4];
      load_matrices_transposed(factor, own + k * 16 * kTileStride<kDim> + n * 8);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply(c.v[m][n], a.v[m][k], factor[0], factor[1], b);
        multiply(c.v[m][n + 1], a.v[m][k], factor[2], factor[3], b);
      }
    }
  }
}

/// The same in tf32: b 8 kK rows of a tile. ldmatrix does not transpose words, so that a lane reads four
/// neighbours of a row at once, one for each of four products: column i of tile 4 q + j of c is column
/// 32 q + 4 i + j of the result.
template <int kDim, int kM, int kK, class E>
requires is_wide<E> __device__ void add_product(Sums<kM, kDim / 8>& c, const Factor<kM, kK, E>& a,
                                                const E* b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const E* own = b + lane % 4 * 2 * kTileStride<kDim, E> + lane / 4 * 4;
#pragma unroll
  for (int k = 0; k < kK; ++k) {
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 4) {
      const E* at = own + k * 8 * kTileStride<kDim, E> + n * 8;
      const uint4 even = *reinterpret_cast<const uint4*>(at);
      const uint4 odd = *reinterpret_cast<const uint4*>(at + kTileStride<kDim, E>);
      const unsigned factors[4][2] = {{even.x, odd.x}, {even.y, odd.y}, {even.z, odd.z}, {even.w, odd.w}};
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_all(c.v[m] + n, a.v[m][k], factors, b);
    }
  }
}

}  // namespace rooflm::backends::cuda
