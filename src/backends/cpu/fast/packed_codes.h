// Codes of packed weights as vectors of floats, scales left out.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/cpu/fast/vec.h"
#include "core/packed_weights.h"

namespace rooflm::backends::cpu {
namespace {

using core::DType;
using core::PackedMatrix;

/// So many bytes, zero-extended to 32 bits.
ROOFLM_INLINE Words load_bytes(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return std::bit_cast<Words>(
      _mm512_maskz_cvtepu8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return std::bit_cast<Words>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  Words x;
  for (int i = 0; i < kLanes; ++i) x[i] = p[i];
  return x;
#endif
}

/// Half bytes, the lower of each byte first.
ROOFLM_INLINE Words load_nibbles(const std::uint8_t* p) {
  std::uint32_t first = 0;
  std::memcpy(&first, p, sizeof first);
  Words x = Words{} + first;
  if constexpr (kLanes == 16) {
    std::uint32_t second = 0;
    std::memcpy(&second, p + sizeof first, sizeof second);
    x = kLaneIndex < 8 ? x : Words{} + second;
  }
  return x >> std::bit_cast<Words>(kLaneIndex % 8 * 4) & 15U;
}

/// table[index], index < 16.
ROOFLM_INLINE Floats look_up(const float* table, Words index) {
#if defined(__AVX512F__)
  return _mm512_maskz_permutexvar_ps(kAll, std::bit_cast<__m512i>(index), load(table));
#elif defined(__AVX2__)
  const auto at = std::bit_cast<__m256i>(index);
  const Floats low = _mm256_permutevar8x32_ps(load(table), at);
  const Floats high = _mm256_permutevar8x32_ps(load(table + 8), at);
  return std::bit_cast<Ints>(index) < 8 ? low : high;
#else
  Floats x;
  for (int i = 0; i < kLanes; ++i) x[i] = table[index[i]];
  return x;
#endif
}

/// The numbers from element `at` of the matrix on, a multiple of 16.
template <DType kFormat>
ROOFLM_INLINE Floats codes_at(const PackedMatrix& w, std::int64_t at) {
  const std::uint8_t* codes = w.codes();
  if constexpr (kFormat == DType::int8) {
    return __builtin_convertvector(std::bit_cast<Ints>(load_bytes(codes + at)) - 128, Floats);
  } else if constexpr (kFormat == DType::int4) {
    return __builtin_convertvector(std::bit_cast<Ints>(load_nibbles(codes + at / 2)) - 8, Floats);
  } else if constexpr (kFormat == DType::nf4) {
    return look_up(core::kNf4Values, load_nibbles(codes + at / 2));
  } else if constexpr (kFormat == DType::fp8_rows) {  // e4m3 is fp16 with three bits of mantissa, times 2^-8
    const Words bits = load_bytes(codes + at);
    return widen_f16(to_16_bits((bits & 0x80U) << 8U | (bits & 0x7fU) << 7U)) * 256.0F;
  } else if constexpr (kFormat == DType::bf16) {
    return load(reinterpret_cast<const core::Bf16*>(codes) + at);
  } else {
    static_assert(kFormat == DType::sparse);
    const auto* kept = reinterpret_cast<const std::uint16_t*>(codes) + at / 2;
    const auto* bits = reinterpret_cast<const std::uint8_t*>(w.scales()) + at / 8;
#if defined(__AVX512F__)
    __mmask16 mask = 0;
    std::memcpy(&mask, bits, sizeof mask);
    const __m512i halves = _mm512_maskz_cvtepu16_epi32(
        kAll, _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kept))));
    return std::bit_cast<Floats>(_mm512_maskz_expand_epi32(mask, _mm512_maskz_slli_epi32(kAll, halves, 16)));
#else
    Words x{};
    for (int i = 0; i < kLanes; ++i)
      if ((bits[i / 8] >> i % 8 & 1U) != 0) x[i] = static_cast<std::uint32_t>(*kept++) << 16U;
    return std::bit_cast<Floats>(x);
#endif
  }
}

/// Vectors of codes as the numbers they stand for.
template <DType kFormat>
struct CodeFloats {
  using Factor = float;
  static constexpr std::int64_t kTerms = kLanes;
  Floats numbers;

  /// From element `at` of the matrix on.
  ROOFLM_INLINE static CodeFloats at(const PackedMatrix& w, std::int64_t at) {
    return {held(codes_at<kFormat>(w, at))};
  }
  /// sum + their products with kTerms numbers.
  [[nodiscard]] ROOFLM_INLINE Floats dot(const float* a, Floats sum) const {
    return fma(load(a), numbers, sum);
  }
};

#if defined(__AVX512BF16__)
/// Formats whose numbers dot products of pairs take. Those of int4 are exact in bf16, of int8 and nf4 the sum
/// of two: exactly, and to 2^-17.
template <DType kFormat>
constexpr bool kHasPairs = kFormat == DType::int8 || kFormat == DType::int4 || kFormat == DType::nf4;

/// The number of a code of 4 bits in bf16, and what is left of it, by the five lower bits of a word: the
/// code, and one bit of its neighbour.
template <DType kFormat>
struct PairTables {
  std::array<std::uint16_t, 32> number{}, rest{};

  constexpr PairTables() {
    for (std::size_t i = 0; i < number.size(); ++i) {
      const float x = kFormat == DType::int4 ? static_cast<float>(i % 16) - 8 : core::kNf4Values[i % 16];
      number[i] = nearest(x);
      rest[i] = nearest(x - std::bit_cast<float>(static_cast<std::uint32_t>(number[i]) << 16U));
    }
  }
  static constexpr std::uint16_t nearest(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
  }
};

/// 64 codes in the low bits of words: those with even indices, and the others.
template <DType kFormat>
struct CodePairs {
  using Factor = core::Bf16;
  static constexpr std::int64_t kTerms = 64;
  __m512i even, odd;

  /// From element `at` of the matrix on.
  ROOFLM_INLINE static CodePairs at(const PackedMatrix& w, std::int64_t at) {
    if constexpr (kFormat == DType::int8) {
      const __m512i words = _mm512_loadu_si512(w.codes() + at);
      return {words, _mm512_srli_epi16(words, 8)};
    } else {
      const auto* from = reinterpret_cast<const __m256i*>(w.codes() + at / 2);
      const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(from));
      return {bytes, _mm512_srli_epi16(bytes, 4)};
    }
  }
  /// sum + their products with kTerms numbers (put_even_first).
  [[nodiscard]] ROOFLM_INLINE Floats dot(const core::Bf16* a, Floats sum) const {
    return std::bit_cast<Floats>(add(a + 32, odd, add(a, even, std::bit_cast<__m512>(sum))));
  }

 private:
  ROOFLM_INLINE static __m512 add(const core::Bf16* a, __m512i codes, __m512 sum) {
    const auto factors = std::bit_cast<__m512bh>(_mm512_loadu_si512(a));
    const auto times = [&](__m512i numbers) {
      sum = _mm512_dpbf16_ps(sum, factors, std::bit_cast<__m512bh>(numbers));
    };
    if constexpr (kFormat == DType::int8) {
      constexpr int kAndOr = 0xea, kAndXor = 0x6a;
      const auto word = [](int bits) { return _mm512_set1_epi16(static_cast<std::int16_t>(bits)); };
      // 128 plus the lower seven bits, and -128 with or -256 without the eighth: bits of bf16.
      times(_mm512_ternarylogic_epi32(codes, word(0x007f), word(0x4300), kAndOr));
      times(_mm512_ternarylogic_epi32(codes, word(0x0080), word(0xc380), kAndXor));
    } else {
      alignas(64) static constexpr PairTables<kFormat> kTables;
      times(_mm512_permutexvar_epi16(codes, _mm512_load_si512(kTables.number.data())));
      if constexpr (kFormat == DType::nf4)
        times(_mm512_permutexvar_epi16(codes, _mm512_load_si512(kTables.rest.data())));
    }
    return sum;
  }
};

/// to [n] = from [n], of each 64 those with even indices first.
ROOFLM_INLINE void put_even_first(std::int64_t n, const core::Bf16* from, core::Bf16* to) {
  alignas(64) static constexpr std::array<std::uint16_t, 32> kEven = [] {
    std::array<std::uint16_t, 32> at{};
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<std::uint16_t>(2 * i);
    return at;
  }();
  const __m512i even = _mm512_load_si512(kEven.data());
  const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
  for (std::int64_t i = 0; i < n; i += 64) {
    const __m512i low = _mm512_loadu_si512(from + i), high = _mm512_loadu_si512(from + i + 32);
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(low, even, high));
    _mm512_storeu_si512(to + i + 32, _mm512_permutex2var_epi16(low, odd, high));
  }
}
#endif

/// Numbers that share a scale; of formats without scales the row.
template <DType kFormat>
constexpr std::int64_t group_of(std::int64_t width) {
  return kFormat == DType::int4 ? 128 : kFormat == DType::nf4 ? 64 : width;
}

/// The scales of a matrix, by group.
template <DType kFormat>
class Scales {
 public:
  explicit Scales(const PackedMatrix& w) : plane_(w.scales()) {
    if constexpr (kFormat == DType::nf4) second_ = w.second_scales();
  }
  ROOFLM_INLINE float operator[](std::int64_t group) const {
    if constexpr (kFormat == DType::nf4) {
      const float* pair = second_ + group / (core::kScaleGroup / 64) * 2;
      return core::kScaleCodes[std::to_integer<std::size_t>(plane_[group])] * pair[0] + pair[1];
    } else if constexpr (kFormat == DType::bf16 || kFormat == DType::sparse) {
      return 1;
    } else {
      float scale = 0;
      std::memcpy(&scale, plane_ + group * 4, sizeof scale);
      return scale;
    }
  }

 private:
  const std::byte* plane_;
  const float* second_ = nullptr;
};

}  // namespace
}  // namespace rooflm::backends::cpu
