// Micro-kernels: GEMMs of small matrices that fit in cache, as attention needs them. Operands are fp32, or
// bf16 in pairs along the inner dimension if the CPU has pairwise dot products; sums are fp32. For this
// folder only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// Two neighbours along the inner dimension, lower index first.
struct Bf16Pair {
  core::Bf16 low, high;
};
static_assert(sizeof(Bf16Pair) == sizeof(float));

#if defined(__AVX512BF16__)
constexpr bool kHasPairDots = true;
#else
constexpr bool kHasPairDots = false;
#endif

/// The element types of operands.
template <class E>
concept TileElement = std::same_as<E, float> || std::same_as<E, Bf16Pair>;

/// Calls body(E{}) with the element type for sums over `terms` numbers of S: pairs where the processor
/// multiplies them, else fp32.
template <Storage S, class Body>
auto with_elements(std::int64_t terms, const Body& body) {
  if constexpr (!std::same_as<S, float> && kHasPairDots) {
    if (terms % 2 == 0) return body(Bf16Pair{});
  }
  return body(float{});
}

/// Terms of a sum per element, and elements for n terms.
template <TileElement E>
constexpr std::int64_t kTerms = std::same_as<E, float> ? 1 : 2;
template <TileElement E>
constexpr std::int64_t elements(std::int64_t n) {
  return (n + kTerms<E> - 1) / kTerms<E>;
}

ROOFLM_INLINE Floats load_bits(const void* p) {
  Floats x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ROOFLM_INLINE Floats splat_bits(const Bf16Pair* p) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<Floats>(Words{} + bits);
}
ROOFLM_INLINE Floats splat_bits(const float* p) { return splat(*p); }

ROOFLM_INLINE Floats multiply_add(Floats left, Floats right, Floats sum, float) { return left * right + sum; }
ROOFLM_INLINE Floats multiply_add(Floats left, Floats right, Floats sum, Bf16Pair) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(left), std::bit_cast<__m512bh>(right));
#else
  const auto a = std::bit_cast<Words>(left);
  const auto b = std::bit_cast<Words>(right);
  const auto high = [](Words x) { return std::bit_cast<Floats>(x & 0xffff0000U); };
  const auto low = [](Words x) { return std::bit_cast<Floats>(x << 16U); };
  return sum + low(a) * low(b) + high(a) * high(b);
#endif
}

/// The left operand, m rows of k elements. Element (i, j) is at data[i * stride + j]; if transposed, at
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

/// What happens to the old contents of the result.
enum class Result { overwrite, accumulate, scale_and_accumulate };

/// A matrix with kLanes*vectors columns and a row stride of `stride` elements.
template <class E>
struct Panel {
  E* data;
  std::int64_t stride;
  [[nodiscard]] ROOFLM_INLINE E* at(std::int64_t row, std::int64_t vector) const {
    return data + row * stride + vector * kLanes;
  }
};

// c[0:kRows, 0:kLanes*kVectors] from k elements per sum, all sums in registers.
template <int kRows, int kVectors, TileElement E, bool kTransposed>
ROOFLM_INLINE void micro_gemm(std::int64_t k, LeftFactor<E, kTransposed> a, std::int64_t row,
                              Panel<const E> b, Panel<float> c, Result result, const float* scale) {
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = result == Result::overwrite ? Floats{} : load(c.at(row + i, v));
      if (result == Result::scale_and_accumulate) sums[i][v] *= load(scale + v * kLanes);
    }
  }
  for (std::int64_t j = 0; j < k; ++j) {
    Floats right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load_bits(b.at(j, v));
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Floats left = splat_bits(a.at(row + i, j));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = multiply_add(left, right[v], sums[i][v], E{});
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c.at(row + i, v), sums[i][v]);
  }
}

// Block sizes. AVX-512: 6 x 4 sums, 4 vectors of the right operand and a broadcast fill the 32 registers.
// Otherwise 6 x 2 sums, 2 vectors and a broadcast fill 16 registers.
constexpr int kMicroRows = 6;
#if defined(__AVX512F__)
constexpr int kMicroVectors = 4;
#else
constexpr int kMicroVectors = 2;
#endif

template <int kVectors, TileElement E, bool kTransposed>
[[gnu::noinline]] void gemm_panel(std::int64_t m, std::int64_t k, LeftFactor<E, kTransposed> a,
                                  Panel<const E> b, Panel<float> c, Result result, const float* scale) {
  std::int64_t i = 0;
  const auto blocks_of = [&]<int kRows>() {
    for (; i + kRows <= m; i += kRows) micro_gemm<kRows, kVectors>(k, a, i, b, c, result, scale);
  };
  blocks_of.template operator()<kMicroRows>();
  blocks_of.template operator()<4>();
  blocks_of.template operator()<2>();
  blocks_of.template operator()<1>();
}

// Calls gemm_panel with `vectors` vectors, which are at most kVectors.
template <int kVectors, TileElement E, bool kTransposed>
ROOFLM_INLINE void gemm_panel_of(std::int64_t vectors, std::int64_t m, std::int64_t k,
                                 LeftFactor<E, kTransposed> a, Panel<const E> b, Panel<float> c,
                                 Result result, const float* scale) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return gemm_panel_of<kVectors - 1>(vectors, m, k, a, b, c, result, scale);
  }
  gemm_panel<kVectors>(m, k, a, b, c, result, scale);
}

///   c = a · b,  c += a · b  or  c = c * scale + a · b
/// a [m, k]; b [k, kLanes*vectors], row stride ldb; c [m, kLanes*vectors], row stride ldc; scale
/// [kLanes*vectors], one factor per column. k counts operand elements.
template <TileElement E, bool kTransposed>
void tile_gemm(Result result, std::int64_t m, std::int64_t vectors, std::int64_t k,
               LeftFactor<E, kTransposed> a, const E* b, std::int64_t ldb, float* c, std::int64_t ldc,
               const float* scale = nullptr) {
  while (vectors > 0) {
    const std::int64_t some =
        vectors <= kMicroVectors ? vectors : std::min<std::int64_t>(kMicroVectors, (vectors + 1) / 2);
    gemm_panel_of<kMicroVectors>(some, m, k, a, Panel<const E>{b, ldb}, Panel<float>{c, ldc}, result, scale);
    b += some * kLanes;
    c += some * kLanes;
    if (result == Result::scale_and_accumulate) scale += some * kLanes;
    vectors -= some;
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
