// SIMD vectors of floats: loads and stores of both storage types, streaming stores, reductions. For this
// folder only: everything is inlined into files compiled for one instruction set.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {
namespace {

#define ROOFLM_INLINE [[gnu::always_inline]] inline
// For lambdas that are loop bodies compiled for several kinds of groups.
#define ROOFLM_INLINE_LAMBDA __attribute__((always_inline))

/// Lanes of a vector: one register. GCC splits operations on wider vectors through memory, comparisons and
/// conversions even lane by lane.
#if defined(__AVX512F__)
constexpr std::int64_t kLanes = 16;
#else
constexpr std::int64_t kLanes = 8;
#endif
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Ints = std::int32_t __attribute__((vector_size(kLanes * 4)));
using Words = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using Shorts = std::uint16_t __attribute__((vector_size(kLanes * 2)));

#if defined(__AVX512F__)
// GCC 12 warns about the unmasked intrinsics, which pass an undefined vector; a constant full mask is free.
constexpr __mmask16 kAll = 0xffff;
constexpr Ints kLaneIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
constexpr Ints kLaneIndex = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

/// x in all lanes. `Floats{} + x` is an addition before that: -0 + 0 is not -0.
ROOFLM_INLINE Floats splat(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX__)
  return _mm256_set1_ps(x);
#else
  return Floats{} + x;
#endif
}

/// Zero-extends 16-bit words to 32 bits, and truncates them back. GCC 12 converts the halves of a vector
/// separately, so intrinsics are used.
ROOFLM_INLINE Words to_32_bits(Shorts x) {
#if defined(__AVX512F__)
  return std::bit_cast<Words>(_mm512_maskz_cvtepu16_epi32(kAll, std::bit_cast<__m256i>(x)));
#elif defined(__AVX2__)
  return std::bit_cast<Words>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(x)));
#else
  return __builtin_convertvector(x, Words);
#endif
}
ROOFLM_INLINE Shorts to_16_bits(Words x) {
#if defined(__AVX512F__)
  return std::bit_cast<Shorts>(_mm512_maskz_cvtepi32_epi16(kAll, std::bit_cast<__m512i>(x)));
#elif defined(__AVX2__)
  const auto low = std::bit_cast<__m256i>(x & 0xffffU);
  return std::bit_cast<Shorts>(
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
#else
  return __builtin_convertvector(x, Shorts);
#endif
}

ROOFLM_INLINE Floats widen(Shorts x) { return std::bit_cast<Floats>(to_32_bits(x) << 16U); }

/// x rounded to bf16 in the upper 16 bits: nearest, ties to even, NaN stays NaN. The lower bits are
/// undefined.
ROOFLM_INLINE Words rounded_bits(Floats x) {
  const auto u = std::bit_cast<Words>(x);
  const Words rounded = u + 0x7fffU + ((u >> 16U) & 1U);
  return x != x ? u | 0x400000U : rounded;
}

/// To bf16, nearest, ties to even, NaN stays NaN.
ROOFLM_INLINE Shorts narrow(Floats x) {
#if defined(__AVX512BF16__)
  return std::bit_cast<Shorts>(_mm512_cvtneps_pbh(x));
#else
  return to_16_bits(rounded_bits(x) >> 16U);
#endif
}

/// From and to fp16, nearest, ties to even; NaN stays NaN.
ROOFLM_INLINE Floats widen_f16(Shorts x) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(kAll, std::bit_cast<__m256i>(x));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(std::bit_cast<__m128i>(x));
#else
  Floats y;
  for (int i = 0; i < kLanes; ++i) y[i] = static_cast<float>(std::bit_cast<core::F16>(x[i]));
  return y;
#endif
}
ROOFLM_INLINE Shorts narrow_f16(Floats x) {
#if defined(__AVX512F__)
  return std::bit_cast<Shorts>(_mm512_maskz_cvtps_ph(kAll, x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  return std::bit_cast<Shorts>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
  Shorts y;
  for (int i = 0; i < kLanes; ++i) y[i] = core::F16(x[i]).bits;
  return y;
#endif
}

/// The value of a number after it is stored as S.
template <Storage S>
ROOFLM_INLINE Floats rounded_to(Floats x) {
  if constexpr (std::same_as<S, float>) return x;
  return widen(narrow(x));
}

/// Two vectors rounded to bf16, those of `low` in the lower half of each word.
ROOFLM_INLINE Words pair_bits(Floats low, Floats high) {
#if defined(__AVX512BF16__)
  using Both = std::uint16_t __attribute__((vector_size(64)));
  const auto both = std::bit_cast<Both>(_mm512_cvtne2ps_pbh(high, low));  // all of low, then all of high
  return std::bit_cast<Words>(__builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                                      22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                      14, 30, 15, 31));
#else
  return (rounded_bits(low) >> 16U) | (rounded_bits(high) & 0xffff0000U);
#endif
}

ROOFLM_INLINE Floats load(const float* p) {
  Floats x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ROOFLM_INLINE Shorts load(const std::uint16_t* p) {
  Shorts x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ROOFLM_INLINE Floats load(const core::Bf16* p) {
  Shorts x;
  std::memcpy(&x, p, sizeof x);
  return widen(x);
}
ROOFLM_INLINE Floats load(const core::F16* p) {
  Shorts x;
  std::memcpy(&x, p, sizeof x);
  return widen_f16(x);
}
ROOFLM_INLINE void store(float* p, Floats x) { std::memcpy(p, &x, sizeof x); }
ROOFLM_INLINE void store(std::uint16_t* p, Shorts x) { std::memcpy(p, &x, sizeof x); }
ROOFLM_INLINE void store(core::Bf16* p, Floats x) {
  const Shorts half = narrow(x);
  std::memcpy(static_cast<void*>(p), &half, sizeof half);
}

ROOFLM_INLINE void store(core::F16* p, Floats x) {
  const Shorts half = narrow_f16(x);
  std::memcpy(static_cast<void*>(p), &half, sizeof half);
}

/// Loads the first `count` (0..kLanes) elements; the other lanes are zero.
ROOFLM_INLINE Floats load_n(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1U), p);
#elif defined(__AVX2__)
  return _mm256_maskload_ps(p, std::bit_cast<__m256i>(kLaneIndex < static_cast<std::int32_t>(count)));
#else
  Floats x{};
  std::memcpy(&x, p, static_cast<std::size_t>(count) * sizeof(float));
  return x;
#endif
}
ROOFLM_INLINE Shorts load_bits_n(const void* p, std::int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<Shorts>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1U << count) - 1U), p));
#else
  Shorts x{};
  std::memcpy(&x, p, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
  return x;
#endif
}
ROOFLM_INLINE Shorts load_n(const std::uint16_t* p, std::int64_t count) { return load_bits_n(p, count); }
ROOFLM_INLINE Floats load_n(const core::Bf16* p, std::int64_t count) { return widen(load_bits_n(p, count)); }
ROOFLM_INLINE Floats load_n(const core::F16* p, std::int64_t count) {
  return widen_f16(load_bits_n(p, count));
}
ROOFLM_INLINE void store_n(float* p, Floats x, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << count) - 1U), x);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, std::bit_cast<__m256i>(kLaneIndex < static_cast<std::int32_t>(count)), x);
#else
  std::memcpy(p, &x, static_cast<std::size_t>(count) * sizeof(float));
#endif
}
ROOFLM_INLINE void store_bits_n(void* p, Shorts x, std::int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1U << count) - 1U), std::bit_cast<__m256i>(x));
#else
  std::memcpy(p, &x, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
#endif
}
ROOFLM_INLINE void store_n(std::uint16_t* p, Shorts x, std::int64_t count) { store_bits_n(p, x, count); }
ROOFLM_INLINE void store_n(core::Bf16* p, Floats x, std::int64_t count) { store_bits_n(p, narrow(x), count); }
ROOFLM_INLINE void store_n(core::F16* p, Floats x, std::int64_t count) {
  store_bits_n(p, narrow_f16(x), count);
}

/// Streaming store: bypasses the caches and does not read the line. p is aligned to the vector size.
ROOFLM_INLINE void stream(float* p, Floats x) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, x);
#elif defined(__AVX__)
  _mm256_stream_ps(p, x);
#else
  store(p, x);
#endif
}
ROOFLM_INLINE void stream(core::Bf16* p, Floats x) {
#if defined(__AVX512F__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), std::bit_cast<__m256i>(narrow(x)));
#elif defined(__AVX__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), std::bit_cast<__m128i>(narrow(x)));
#else
  store(p, x);
#endif
}
/// Fence: must follow streaming stores before other threads read their results.
ROOFLM_INLINE void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// As core::join_halves and core::split_in_halves, whose upper halves are H.
template <Half H>
ROOFLM_INLINE Floats join_halves(Shorts upper, Shorts lower) {
  const auto missing = std::bit_cast<Ints>(to_32_bits(lower) << 16U) >> 16;
  const auto count = std::bit_cast<Words>(missing);
  if constexpr (std::same_as<H, core::Bf16>) {
    return std::bit_cast<Floats>((to_32_bits(upper) << 16U) + count);
  } else {
    const Floats rounded = widen_f16(upper);
    const Floats small = rounded + __builtin_convertvector(missing, Floats) * 0x1p-40F;
    const auto whole = std::bit_cast<Floats>(std::bit_cast<Words>(rounded) + count);
    return (to_32_bits(upper) & 0x7c00U) == 0U ? small : whole;
  }
}
struct HalfVectors {
  Shorts upper, lower;
};
template <Half H>
ROOFLM_INLINE HalfVectors split_halves(Floats x) {
  if constexpr (std::same_as<H, core::Bf16>) {
    const auto bits = x != x ? Words{} + 0x7fc00000U : std::bit_cast<Words>(x);
    return {to_16_bits((bits + 0x8000U) >> 16U), to_16_bits(bits)};
  } else {
    constexpr float kMost = 0x7fff;
    const Shorts upper = narrow_f16(x);
    const Floats rounded = widen_f16(upper);
    const Words exponent = to_32_bits(upper) & 0x7c00U;
    Floats units = (x - rounded) * 0x1p40F;
    units = exponent == 0U ? units : Floats{};  // no number is too large for an integer
    units = units > kMost ? splat(kMost) : units;
    units = units < -kMost ? splat(-kMost) : units;
    constexpr float kRounder = 0x1.8p23F;  // of what is added to it no fraction is left
    const auto small = std::bit_cast<Words>(__builtin_convertvector((units + kRounder) - kRounder, Ints));
    const Words whole = std::bit_cast<Words>(x) - std::bit_cast<Words>(rounded);
    const Words lower = exponent == 0U ? small : whole;
    return {upper, to_16_bits(exponent == 0x7c00U ? Words{} : lower)};
  }
}

/// Lanes >= count replaced by `value`.
ROOFLM_INLINE Floats pad(Floats x, std::int64_t count, float value) {
  return kLaneIndex < static_cast<std::int32_t>(count) ? x : splat(value);
}

/// x in a register: g++ 12 loads again for each use what it could keep.
ROOFLM_INLINE Floats held(Floats x) {
#if defined(__AVX512F__)
  asm("" : "+v"(x));
#elif defined(__AVX__)
  asm("" : "+x"(x));
#endif
  return x;
}

/// a * b + c with one rounding.
ROOFLM_INLINE Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

/// Lane-wise maximum and minimum; a NaN in b is kept, a NaN in a gives b.
ROOFLM_INLINE Floats max(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(kAll, a, b);
#elif defined(__AVX__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
ROOFLM_INLINE Floats min(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(kAll, a, b);
#elif defined(__AVX__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

/// In halves: lane i and lane i + kLanes / 2, and so on.
ROOFLM_INLINE float sum_lanes(Floats x) {
#if defined(__AVX512F__)
  const auto eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  const Floats eight = x;
#endif
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const auto two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
  return two[0] + two[1];
}
ROOFLM_INLINE float max_lanes(Floats x) {
  float part[kLanes / 2];
  for (int i = 0; i < kLanes / 2; ++i) part[i] = x[i] > x[i + kLanes / 2] ? x[i] : x[i + kLanes / 2];
  for (int half = kLanes / 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
  }
  return part[0];
}

ROOFLM_INLINE Floats square_root(Floats x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(kAll, x);
#elif defined(__AVX__)
  return _mm256_sqrt_ps(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

/// To the nearest integer, ties to even; |x| < 2^22.
ROOFLM_INLINE Floats round_to_integer(Floats x) {
#if defined(__AVX512F__)
  return _mm512_maskz_roundscale_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX__)
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  return (x + 12582912.0F) - 12582912.0F;
#endif
}

/// Calls `body(i, count)` for consecutive groups of lanes of [begin, end). count is a WholeGroup for whole
/// groups, so `load_at` and `store_at` are plain moves, and 1..kLanes-1 for the last group.
struct WholeGroup {};
/// A whole group whose results are streamed past the caches; they are aligned.
struct StreamedGroup {};
ROOFLM_INLINE auto load_at(const auto* p, WholeGroup) { return load(p); }
ROOFLM_INLINE auto load_at(const auto* p, StreamedGroup) { return load(p); }
ROOFLM_INLINE auto load_at(const auto* p, std::int64_t count) { return load_n(p, count); }
ROOFLM_INLINE void store_at(auto* p, auto x, WholeGroup) { store(p, x); }
ROOFLM_INLINE void store_at(auto* p, auto x, StreamedGroup) { stream(p, x); }
ROOFLM_INLINE void store_at(auto* p, auto x, std::int64_t count) { store_n(p, x, count); }
/// The same lanes for an array that stays in the caches or is not aligned.
ROOFLM_INLINE WholeGroup plain(WholeGroup group) { return group; }
ROOFLM_INLINE WholeGroup plain(StreamedGroup) { return {}; }
ROOFLM_INLINE std::int64_t plain(std::int64_t count) { return count; }
ROOFLM_INLINE Floats pad_at(Floats x, WholeGroup, float) { return x; }
ROOFLM_INLINE Floats pad_at(Floats x, std::int64_t count, float value) { return pad(x, count, value); }

template <class Body>
ROOFLM_INLINE void for_lanes(std::int64_t begin, std::int64_t end, Body&& body) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, WholeGroup{});
  if (i < end) body(i, end - i);
}

/// Streaming covers whole cache lines: a line that is written both ways would be transferred twice.
constexpr std::int64_t kLineBytes = 64;

/// Number of elements from p to the next cache line, at most `most`.
template <class T>
std::int64_t elements_to_line(const T* p, std::int64_t most) {
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p) % kLineBytes);
  const std::int64_t elements = past == 0 ? 0 : (kLineBytes - past) / static_cast<std::int64_t>(sizeof(T));
  return elements < most ? elements : most;
}

/// The same. If `streams`, groups that cover whole lines of `to`, the only array that the body writes, are
/// StreamedGroups. The groups then differ, so no sum may depend on them.
template <class T, class Body>
ROOFLM_INLINE void for_lanes_to(const T* to, bool streams, std::int64_t begin, std::int64_t end,
                                Body&& body) {
  std::int64_t i = begin;
  if (streams) {
    constexpr auto kLine = kLineBytes / static_cast<std::int64_t>(sizeof(T));
    i += elements_to_line(to + i, end - i);
    for_lanes(begin, i, body);
    for (; i + kLine <= end; i += kLine) {
      for (std::int64_t part = 0; part < kLine; part += kLanes) body(i + part, StreamedGroup{});
    }
  }
  for_lanes(i, end, body);
}

}  // namespace
}  // namespace rooflm::backends::cpu
