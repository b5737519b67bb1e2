// Sixteen floats at a time: loads and stores of both storage types, reductions, exp and sigmoid.
// For the kernels of this folder only: everything here is inlined into files compiled for one machine.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {
namespace {

#define ROOFLM_INLINE [[gnu::always_inline]] inline

/// Lanes of a vector. Without AVX-512 the compiler splits the operations.
constexpr std::int64_t kLanes = 16;
using F32x16 = float __attribute__((vector_size(64)));
using I32x16 = std::int32_t __attribute__((vector_size(64)));
using U32x16 = std::uint32_t __attribute__((vector_size(64)));
using U16x16 = std::uint16_t __attribute__((vector_size(32)));

#if defined(__AVX512F__)
// GCC 12 warns about the unmasked intrinsics, which pass an undefined vector; a constant full mask costs
// nothing.
constexpr __mmask16 kAll = 0xffff;
#endif

ROOFLM_INLINE F32x16 splat(float x) { return F32x16{} + x; }

/// Numbers of 16 bits as such of 32, and the lower 16 bits of such of 32. GCC 12 converts halves of 512 bits
/// apart, so AVX-512 is asked for by name.
ROOFLM_INLINE U32x16 to_32_bits(U16x16 x) {
#if defined(__AVX512F__)
  return std::bit_cast<U32x16>(_mm512_maskz_cvtepu16_epi32(kAll, std::bit_cast<__m256i>(x)));
#else
  return __builtin_convertvector(x, U32x16);
#endif
}
ROOFLM_INLINE U16x16 to_16_bits(U32x16 x) {
#if defined(__AVX512F__)
  return std::bit_cast<U16x16>(_mm512_maskz_cvtepi32_epi16(kAll, std::bit_cast<__m512i>(x)));
#else
  return __builtin_convertvector(x, U16x16);
#endif
}

ROOFLM_INLINE F32x16 widen(U16x16 x) { return std::bit_cast<F32x16>(to_32_bits(x) << 16U); }

/// To bf16, nearest, ties to even, NaN stays NaN.
ROOFLM_INLINE U16x16 narrow(F32x16 x) {
#if defined(__AVX512BF16__)
  return std::bit_cast<U16x16>(_mm512_cvtneps_pbh(x));
#else
  const auto u = std::bit_cast<U32x16>(x);
  const U32x16 rounded = (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U;
  const U32x16 nan = (u >> 16U) | 0x40U;
  return to_16_bits((u & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
#endif
}

ROOFLM_INLINE F32x16 load(const float* p) {
  F32x16 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ROOFLM_INLINE U16x16 load(const std::uint16_t* p) {
  U16x16 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ROOFLM_INLINE F32x16 load(const core::Bf16* p) {
  U16x16 x;
  std::memcpy(&x, p, sizeof x);
  return widen(x);
}
ROOFLM_INLINE void store(float* p, F32x16 x) { std::memcpy(p, &x, sizeof x); }
ROOFLM_INLINE void store(std::uint16_t* p, U16x16 x) { std::memcpy(p, &x, sizeof x); }
ROOFLM_INLINE void store(core::Bf16* p, F32x16 x) {
  const U16x16 half = narrow(x);
  std::memcpy(static_cast<void*>(p), &half, sizeof half);
}

/// The first `count` (0..16) elements; the other lanes are zero.
ROOFLM_INLINE F32x16 load_n(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1U), p);
#else
  F32x16 x{};
  std::memcpy(&x, p, static_cast<std::size_t>(count) * sizeof(float));
  return x;
#endif
}
ROOFLM_INLINE U16x16 load_bits_n(const void* p, std::int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<U16x16>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1U << count) - 1U), p));
#else
  U16x16 x{};
  std::memcpy(&x, p, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
  return x;
#endif
}
ROOFLM_INLINE U16x16 load_n(const std::uint16_t* p, std::int64_t count) { return load_bits_n(p, count); }
ROOFLM_INLINE F32x16 load_n(const core::Bf16* p, std::int64_t count) { return widen(load_bits_n(p, count)); }
ROOFLM_INLINE void store_n(float* p, F32x16 x, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << count) - 1U), x);
#else
  std::memcpy(p, &x, static_cast<std::size_t>(count) * sizeof(float));
#endif
}
ROOFLM_INLINE void store_bits_n(void* p, U16x16 x, std::int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1U << count) - 1U), std::bit_cast<__m256i>(x));
#else
  std::memcpy(p, &x, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
#endif
}
ROOFLM_INLINE void store_n(std::uint16_t* p, U16x16 x, std::int64_t count) { store_bits_n(p, x, count); }
ROOFLM_INLINE void store_n(core::Bf16* p, F32x16 x, std::int64_t count) { store_bits_n(p, narrow(x), count); }

/// As core::Halves: fp32 from its two halves, and the halves of fp32, the upper one rounded, NaN the same
/// one.
ROOFLM_INLINE F32x16 join_halves(U16x16 upper, U16x16 lower) {
  const auto missing = std::bit_cast<I32x16>(to_32_bits(lower) << 16U) >> 16;
  return std::bit_cast<F32x16>((to_32_bits(upper) << 16U) + std::bit_cast<U32x16>(missing));
}
struct HalfVectors {
  U16x16 upper, lower;
};
ROOFLM_INLINE HalfVectors split_halves(F32x16 x) {
  auto bits = std::bit_cast<U32x16>(x);
  bits = (bits & 0x7fffffffU) > 0x7f800000U ? U32x16{} + 0x7fc00000U : bits;
  return {to_16_bits((bits + 0x8000U) >> 16U), to_16_bits(bits)};
}

/// Lanes >= count replaced by `value`.
ROOFLM_INLINE F32x16 pad(F32x16 x, std::int64_t count, float value) {
  constexpr I32x16 kIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return kIndex < static_cast<std::int32_t>(count) ? x : splat(value);
}

/// a * b + c with one rounding.
ROOFLM_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

/// Lane by lane maximum; a NaN in b is kept, a NaN in a gives b.
ROOFLM_INLINE F32x16 max(F32x16 a, F32x16 b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(kAll, a, b);
#else
  return a > b ? a : b;
#endif
}

ROOFLM_INLINE float sum_lanes(F32x16 x) {
  float part[8];
  for (int i = 0; i < 8; ++i) part[i] = x[i] + x[i + 8];
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  }
  return part[0];
}
ROOFLM_INLINE float max_lanes(F32x16 x) {
  float part[8];
  for (int i = 0; i < 8; ++i) part[i] = x[i] > x[i + 8] ? x[i] : x[i + 8];
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
  }
  return part[0];
}

ROOFLM_INLINE F32x16 square_root(F32x16 x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(kAll, x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

/// 2^t for |t| <= 0.5, what is left of an exponent after its nearest integer was taken off. Minimax
/// polynomial of degree 6, relative error 1e-8 before rounding.
ROOFLM_INLINE F32x16 exp2_fraction(F32x16 t) {
  F32x16 y = t * 0.000154531634F + 0.00133908633F;
  y = y * t + 0.00961808302F;
  y = y * t + 0.0555035695F;
  y = y * t + 0.240226507F;
  y = y * t + 0.693147182F;
  return y * t + 1.0F;
}

/// x * 2^n for integral n in [-160, 160]; with AVX-512 for any n.
ROOFLM_INLINE F32x16 times_power_of_two(F32x16 x, F32x16 n) {
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(kAll, x, n);
#else
  const I32x16 whole = __builtin_convertvector(n, I32x16);
  const I32x16 half = whole >> 1;
  return x * std::bit_cast<F32x16>((half + 127) << 23) * std::bit_cast<F32x16>((whole - half + 127) << 23);
#endif
}

/// To the nearest integer, ties to even; |x| < 2^22.
ROOFLM_INLINE F32x16 round_to_integer(F32x16 x) {
#if defined(__AVX512F__)
  return _mm512_maskz_roundscale_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  return (x + 12582912.0F) - 12582912.0F;
#endif
}

/// exp(x) within 2 ulp; inf above 88.73, 0 or subnormal below -87.4; NaN for NaN.
ROOFLM_INLINE F32x16 exp(F32x16 x) {
  constexpr float kLog2eHigh = 1.44269502F;
  constexpr float kLog2eLow = 1.92596303e-8F;
  x = max(splat(-105.0F), x);
  x = 90.0F < x ? splat(90.0F) : x;
  const F32x16 n = round_to_integer(x * kLog2eHigh);
  // Written out: left to itself, the compiler reuses the rounded product of the line before.
  const F32x16 t = fma(x, splat(kLog2eHigh), -n) + x * kLog2eLow;
  return times_power_of_two(exp2_fraction(t), n);
}

/// 2^x for finite x <= 0, as softmax needs it; 0 for what is far below. Within 2 ulp.
ROOFLM_INLINE F32x16 exp2_nonpositive(F32x16 x) {
#if !defined(__AVX512F__)
  x = max(splat(-150.0F), x);  // what the other times_power_of_two can take
#endif
  const F32x16 n = round_to_integer(x);
  return times_power_of_two(exp2_fraction(x - n), n);
}

/// 1 / (1 + exp(-x))
ROOFLM_INLINE F32x16 sigmoid(F32x16 x) { return 1.0F / (1.0F + exp(-x)); }

/// Calls `body(i, count)` for consecutive groups of lanes of [begin, end); count is an integral constant 16
/// for whole groups, so that `load_at` and `store_at` become plain moves, and 1..15 for the last.
struct WholeGroup {};
ROOFLM_INLINE auto load_at(const auto* p, WholeGroup) { return load(p); }
ROOFLM_INLINE auto load_at(const auto* p, std::int64_t count) { return load_n(p, count); }
ROOFLM_INLINE void store_at(auto* p, auto x, WholeGroup) { store(p, x); }
ROOFLM_INLINE void store_at(auto* p, auto x, std::int64_t count) { store_n(p, x, count); }
ROOFLM_INLINE F32x16 pad_at(F32x16 x, WholeGroup, float) { return x; }
ROOFLM_INLINE F32x16 pad_at(F32x16 x, std::int64_t count, float value) { return pad(x, count, value); }

template <class Body>
ROOFLM_INLINE void for_lanes(std::int64_t begin, std::int64_t end, Body&& body) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, WholeGroup{});
  if (i < end) body(i, end - i);
}

}  // namespace
}  // namespace rooflm::backends::cpu
