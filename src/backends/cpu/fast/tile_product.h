// Products of small matrices that sit in cache, as attention makes them: the innermost kernels. Factors are
// fp32, or bf16 in pairs along the summed dimension where the processor has dot products of pairs; sums are
// fp32. For the kernels of this folder only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// Two neighbours along the summed dimension, the one of the lower index first.
struct Bf16Pair {
  core::Bf16 low, high;
};
static_assert(sizeof(Bf16Pair) == sizeof(float));

#if defined(__AVX512BF16__)
constexpr bool kHasPairProducts = true;
#else
constexpr bool kHasPairProducts = false;
#endif

/// What a factor consists of.
template <class E>
concept TileElement = std::same_as<E, float> || std::same_as<E, Bf16Pair>;

/// How many terms of a sum one element holds, and how many elements hold n terms.
template <TileElement E>
constexpr std::int64_t kTerms = std::same_as<E, float> ? 1 : 2;
template <TileElement E>
constexpr std::int64_t elements(std::int64_t n) {
  return (n + kTerms<E> - 1) / kTerms<E>;
}

ROOFLM_INLINE F32x16 load_bits(const void* p) {
  F32x16 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ROOFLM_INLINE F32x16 splat_bits(const Bf16Pair* p) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<F32x16>(U32x16{} + bits);
}
ROOFLM_INLINE F32x16 splat_bits(const float* p) { return splat(*p); }

ROOFLM_INLINE F32x16 multiply_add(F32x16 left, F32x16 right, F32x16 sum, float) { return left * right + sum; }
ROOFLM_INLINE F32x16 multiply_add(F32x16 left, F32x16 right, F32x16 sum, Bf16Pair) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(left), std::bit_cast<__m512bh>(right));
#else
  const auto a = std::bit_cast<U32x16>(left);
  const auto b = std::bit_cast<U32x16>(right);
  const auto high = [](U32x16 x) { return std::bit_cast<F32x16>(x & 0xffff0000U); };
  const auto low = [](U32x16 x) { return std::bit_cast<F32x16>(x << 16U); };
  return sum + low(a) * low(b) + high(a) * high(b);
#endif
}

/// The left factor, m rows of k elements. Element (i, j) is at data[i * stride + j], or transposed at
/// data[i + j * stride].
template <TileElement E, bool kTransposed>
struct LeftFactor {
  const E* data;
  std::int64_t stride;
  [[nodiscard]] ROOFLM_INLINE const E* at(std::int64_t i, std::int64_t j) const {
    return kTransposed ? data + i + j * stride : data + i * stride + j;
  }
};
template <TileElement E>
ROOFLM_INLINE LeftFactor<E, false> by_rows(const E* data, std::int64_t stride) {
  return {data, stride};
}
template <TileElement E>
ROOFLM_INLINE LeftFactor<E, true> transposed(const E* data, std::int64_t stride) {
  return {data, stride};
}

/// What becomes of the elements that the result held.
enum class Result { overwrite, accumulate, scale_and_accumulate };

// c[0:kRows, 0:16*kVectors] from k elements per sum, all sums in registers.
template <int kRows, int kVectors, Result kResult, TileElement E, bool kTransposed>
ROOFLM_INLINE void micro_product(std::int64_t k, LeftFactor<E, kTransposed> a, std::int64_t row, const E* b,
                                 std::int64_t ldb, float* c, std::int64_t ldc, const float* scale) {
  F32x16 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = kResult == Result::overwrite ? F32x16{} : load(c + i * ldc + v * kLanes);
      if (kResult == Result::scale_and_accumulate) sums[i][v] *= load(scale + v * kLanes);
    }
  }
  for (std::int64_t j = 0; j < k; ++j) {
    F32x16 right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load_bits(b + j * ldb + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const F32x16 left = splat_bits(a.at(row + i, j));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = multiply_add(left, right[v], sums[i][v], E{});
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + i * ldc + v * kLanes, sums[i][v]);
  }
}

// One block of at most 6 rows: 6 x 4 sums, 4 right vectors and a broadcast fill the 32 registers.
constexpr std::int64_t kMicroRows = 6;

template <int kVectors, Result kResult, TileElement E, bool kTransposed>
void product_panel(std::int64_t m, std::int64_t k, LeftFactor<E, kTransposed> a, const E* b, std::int64_t ldb,
                   float* c, std::int64_t ldc, const float* scale) {
  std::int64_t i = 0;
  for (; i + kMicroRows <= m; i += kMicroRows) {
    micro_product<kMicroRows, kVectors, kResult>(k, a, i, b, ldb, c + i * ldc, ldc, scale);
  }
  const auto rest = [&]<int kRows>() {
    micro_product<kRows, kVectors, kResult>(k, a, i, b, ldb, c + i * ldc, ldc, scale);
  };
  switch (m - i) {
    case 1:
      return rest.template operator()<1>();
    case 2:
      return rest.template operator()<2>();
    case 3:
      return rest.template operator()<3>();
    case 4:
      return rest.template operator()<4>();
    case 5:
      return rest.template operator()<5>();
    default:
      return;
  }
}

/// c = a · b, c += a · b or c = c * scale + a · b with a [m, k], b [k, 16*vectors] (row stride ldb), c
/// [m, 16*vectors] (row stride ldc), scale [16*vectors] one factor per column; k counts elements of the
/// factors.
template <Result kResult, TileElement E, bool kTransposed>
ROOFLM_INLINE void tile_product(std::int64_t m, std::int64_t vectors, std::int64_t k,
                                LeftFactor<E, kTransposed> a, const E* b, std::int64_t ldb, float* c,
                                std::int64_t ldc, const float* scale = nullptr) {
  while (vectors > 0) {
    const std::int64_t panel = vectors <= 4 ? vectors : std::min<std::int64_t>(4, (vectors + 1) / 2);
    const auto run = [&]<int kVectors>() {
      product_panel<kVectors, kResult>(m, k, a, b, ldb, c, ldc, scale);
    };
    switch (panel) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      default:
        run.template operator()<4>();
        break;
    }
    b += panel * kLanes;
    c += panel * kLanes;
    if (kResult == Result::scale_and_accumulate) scale += panel * kLanes;
    vectors -= panel;
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
