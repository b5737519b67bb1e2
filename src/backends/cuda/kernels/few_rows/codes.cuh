// Codes of packed weights as pairs of bf16 or fp16, scales left out. A pair is two elements of a row in one
// word, the lower half first.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace rooflm::backends::cuda {

using core::DType;

/// Elements of a row in 16 bytes.
template <DType kFormat>
constexpr int kPerLoad = kFormat == DType::int4 || kFormat == DType::nf4        ? 32
                         : kFormat == DType::int8 || kFormat == DType::fp8_rows ? 16
                                                                                : 8;

template <class T>
constexpr bool is_bf16 = std::is_same_v<T, __nv_bfloat16>;

/// Two words of halves as one: (low of a, low of b), (high of a, high of b).
__device__ inline unsigned low_halves(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ inline unsigned high_halves(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }

/// x + by of two halves each; exact for what is below.
template <class T>
__device__ unsigned add_pairs(unsigned x, unsigned by) {
  unsigned sum;
  if constexpr (is_bf16<T>) {
    const __nv_bfloat162 result =
        __hadd2(reinterpret_cast<const __nv_bfloat162&>(x), reinterpret_cast<const __nv_bfloat162&>(by));
    sum = reinterpret_cast<const unsigned&>(result);
  } else {
    const __half2 result = __hadd2(reinterpret_cast<const __half2&>(x), reinterpret_cast<const __half2&>(by));
    sum = reinterpret_cast<const unsigned&>(result);
  }
  return sum;
}

/// int8: bytes c + 128. A byte below the exponent of 2^23 (fp32) or 2^10 (fp16) is 2^23 or 2^10 and as many
/// units more.
template <class T>
__device__ void unpack_int8(unsigned word, unsigned (&to)[2]) {
  if constexpr (is_bf16<T>) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = __uint_as_float(__byte_perm(word, 0x4b000000U, 0x7540 + i)) - (8388608.0F + 128.0F);
    to[0] = high_halves(__float_as_uint(x[0]), __float_as_uint(x[1]));  // 8 bits fit: nothing is cut off
    to[1] = high_halves(__float_as_uint(x[2]), __float_as_uint(x[3]));
  } else {
    constexpr unsigned kLess = 0xe480e480U;  // -1152
    to[0] = add_pairs<T>(__byte_perm(word, 0x64646464U, 0x4140), kLess);
    to[1] = add_pairs<T>(__byte_perm(word, 0x64646464U, 0x4342), kLess);
  }
}

/// fp8 e4m3: sign, exponent and mantissa in their places, times what the exponents' biases differ by.
template <class T>
__device__ void unpack_fp8(unsigned word, unsigned (&to)[2]) {
  constexpr unsigned kSigns = 0x80008000U;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned wide = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);  // in the upper bytes of halves
    if constexpr (is_bf16<T>) {
      const unsigned bits = (wide & kSigns) | (wide >> 4 & 0x07f007f0U);
      const __nv_bfloat162 scaled =
          __hmul2(reinterpret_cast<const __nv_bfloat162&>(bits), __float2bfloat162_rn(0x1p120F));
      to[i] = reinterpret_cast<const unsigned&>(scaled);
    } else {
      const unsigned bits = (wide & kSigns) | (wide >> 1 & 0x3f803f80U);
      const __half2 scaled = __hmul2(reinterpret_cast<const __half2&>(bits), __float2half2_rn(256.0F));
      to[i] = reinterpret_cast<const unsigned&>(scaled);
    }
  }
}

/// int4: half bytes c + 8, below the exponent of 2^7 (bf16) or 2^10 (fp16). Of eight elements the pairs are
/// (0, 4), (1, 5), (2, 6), (3, 7).
template <class T>
__device__ void unpack_int4(unsigned word, unsigned (&to)[4]) {
  constexpr unsigned kAbove = is_bf16<T> ? 0x43004300U : 0x64006400U;
  constexpr unsigned kLess = is_bf16<T> ? 0xc308c308U : 0xe408e408U;  // -136, -1032
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = add_pairs<T>((word >> 4 * i & 0x000f000fU) | kAbove, kLess);
}

/// The bytes of a table of 16 at four half bytes of `codes`, which is below 2^16.
__device__ inline unsigned look_up_bytes(const unsigned (&table)[4], unsigned codes) {
  const unsigned each = codes & 0x7777U;
  const unsigned lower = __byte_perm(table[0], table[1], each);
  const unsigned upper = __byte_perm(table[2], table[3], each);
  return __byte_perm(lower, upper, 0x3210U | (codes & 0x8888U) >> 1);
}

/// nf4: core::kNf4Values, rounded to halves, whose lower and upper bytes are two tables. Of eight elements
/// the pairs are neighbours.
template <class T>
__device__ void unpack_nf4(unsigned word, unsigned (&to)[4]) {
  constexpr unsigned kLower[2][4] = {{0xca063280U, 0x00ba3d92U, 0xad7c25a3U, 0x803910e2U},
                                     {0x52339200U, 0x00d4ea8dU, 0x68e02618U, 0x00c9800dU}};
  constexpr unsigned kUpper[2][4] = {{0xbebfbfbfU, 0x00bdbebeU, 0x3e3e3e3dU, 0x3f3f3f3eU},
                                     {0xb6b8b9bcU, 0x00adb1b4U, 0x3533312dU, 0x3c393837U}};
  constexpr int kType = is_bf16<T> ? 0 : 1;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned codes = word >> 16 * i & 0xffffU;
    const unsigned lower = look_up_bytes(kLower[kType], codes);
    const unsigned upper = look_up_bytes(kUpper[kType], codes);
    to[2 * i] = __byte_perm(lower, upper, 0x5140);
    to[2 * i + 1] = __byte_perm(lower, upper, 0x7362);
  }
}

}  // namespace rooflm::backends::cuda
