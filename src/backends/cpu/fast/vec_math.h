// exp of vectors, as precise as the storage type needs, several vectors interleaved. For this folder only.
#pragma once

#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// Several vectors that go through the same operations. A CPU's out-of-order window covers about one exp, so
/// independent ones must be interleaved to fill its ports. Sized by the number of registers.
struct Bundle {
#if defined(__AVX512F__)
  static constexpr int kCount = 4;
#else
  static constexpr int kCount = 2;
#endif
  static constexpr std::int64_t kElements = kCount * kLanes;
  Floats v[kCount];
};

/// Vector i of a bundle operand, or the operand itself.
ROOFLM_INLINE Floats part(const Bundle& x, int i) { return x.v[i]; }
ROOFLM_INLINE Floats part(Floats x, int) { return x; }
ROOFLM_INLINE float part(float x, int) { return x; }

/// operation(parts of the operands) for each vector of a bundle; a single vector if all operands are.
template <class Operation, class... Operands>
ROOFLM_INLINE auto each(const Operation& operation, const Operands&... operands) {
  if constexpr ((std::same_as<Operands, Bundle> || ...)) {
    Bundle y;
#pragma GCC unroll 4
    for (int i = 0; i < Bundle::kCount; ++i) y.v[i] = operation(part(operands, i)...);
    return y;
  } else {
    return operation(operands...);
  }
}

template <class A, class B>
concept MakeBundle = std::same_as<A, Bundle> || std::same_as<B, Bundle>;
template <class A, class B>
requires MakeBundle<A, B> ROOFLM_INLINE Bundle operator+(const A& a, const B& b) {
  return each([](auto x, auto y) { return x + y; }, a, b);
}
template <class A, class B>
requires MakeBundle<A, B> ROOFLM_INLINE Bundle operator-(const A& a, const B& b) {
  return each([](auto x, auto y) { return x - y; }, a, b);
}
template <class A, class B>
requires MakeBundle<A, B> ROOFLM_INLINE Bundle operator*(const A& a, const B& b) {
  return each([](auto x, auto y) { return x * y; }, a, b);
}
template <class A, class B>
requires MakeBundle<A, B> ROOFLM_INLINE Bundle operator/(const A& a, const B& b) {
  return each([](auto x, auto y) { return x / y; }, a, b);
}

ROOFLM_INLINE Bundle operator-(const Bundle& a) {
  return each([](Floats x) { return -x; }, a);
}

/// Start and end of reductions.
ROOFLM_INLINE Bundle splat_bundle(float x) { return Bundle{} + x; }
ROOFLM_INLINE Floats sum_of(const Bundle& x) {
  if constexpr (Bundle::kCount == 2) return x.v[0] + x.v[1];
  return (x.v[0] + x.v[1]) + (x.v[2] + x.v[3]);
}
ROOFLM_INLINE Floats max_of(const Bundle& x) {
  if constexpr (Bundle::kCount == 2) return max(x.v[0], x.v[1]);
  return max(max(x.v[0], x.v[1]), max(x.v[2], x.v[3]));
}
ROOFLM_INLINE Bundle max(const Bundle& a, const Bundle& b) {
  return each([](Floats x, Floats y) { return max(x, y); }, a, b);
}
/// Bundle::kElements elements. In bf16 each vector holds every second element of a part, which avoids moving
/// them across lanes: arrays that are combined must have the same storage type.
struct BundleGroup {};
struct StreamedBundle {};
ROOFLM_INLINE Bundle load_bundle(const float* p) {
  Bundle x;
#pragma GCC unroll 4
  for (int i = 0; i < Bundle::kCount; ++i) x.v[i] = load(p + i * kLanes);
  return x;
}
ROOFLM_INLINE Bundle load_bundle(const core::Bf16* p) {
  Bundle x;
#pragma GCC unroll 2
  for (int i = 0; i < Bundle::kCount; i += 2) {
    Words pairs;
    std::memcpy(&pairs, p + i * kLanes, sizeof pairs);
    x.v[i] = std::bit_cast<Floats>(pairs << 16U);
    x.v[i + 1] = std::bit_cast<Floats>(pairs & 0xffff0000U);
  }
  return x;
}
ROOFLM_INLINE void store_bundle(float* p, const Bundle& x, auto to) {
#pragma GCC unroll 4
  for (int i = 0; i < Bundle::kCount; ++i) to(p + i * kLanes, x.v[i]);
}
ROOFLM_INLINE void store_bundle(core::Bf16* p, const Bundle& x, auto to) {
#pragma GCC unroll 2
  for (int i = 0; i < Bundle::kCount; i += 2) {
    to(reinterpret_cast<float*>(p + i * kLanes), std::bit_cast<Floats>(pair_bits(x.v[i], x.v[i + 1])));
  }
}
ROOFLM_INLINE Bundle load_at(const auto* p, BundleGroup) { return load_bundle(p); }
ROOFLM_INLINE Bundle load_at(const auto* p, StreamedBundle) { return load_bundle(p); }
ROOFLM_INLINE void store_at(auto* p, const Bundle& x, BundleGroup) {
  store_bundle(p, x, [](float* to, Floats part) { store(to, part); });
}
ROOFLM_INLINE void store_at(auto* p, const Bundle& x, StreamedBundle) {
  store_bundle(p, x, [](float* to, Floats part) { stream(to, part); });
}

/// Prefetches the lines of a whole group, some time before they are loaded. They may lie past the array. The
/// hardware prefetcher stops at the end of a run of lines.
template <class T>
ROOFLM_INLINE void fetch_line_by_line(const T* p, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; i += kLineBytes / static_cast<std::int64_t>(sizeof(T)))
    __builtin_prefetch(p + i);
}
ROOFLM_INLINE void fetch(const auto* p, BundleGroup) { fetch_line_by_line(p, Bundle::kElements); }
ROOFLM_INLINE void fetch(const auto* p, StreamedBundle) { fetch_line_by_line(p, Bundle::kElements); }
ROOFLM_INLINE void fetch(const auto*, auto) {}

/// As for_lanes_to, mostly in BundleGroups. The body must compute each element independently of other
/// elements and of its group.
template <class T, class Body>
ROOFLM_INLINE void for_bundles_to(const T* to, bool streams, std::int64_t begin, std::int64_t end,
                                  Body&& body) {
  constexpr std::int64_t kElements = Bundle::kElements;
  std::int64_t i = begin;
  if (streams) {
    i += elements_to_line(to + i, end - i);
    for_lanes(begin, i, body);
    for (; i + kElements <= end; i += kElements) body(i, StreamedBundle{});
    return for_lanes_to(to, streams, i, end, body);
  }
  for (; i + kElements <= end; i += kElements) body(i, BundleGroup{});
  for_lanes(i, end, body);
}

/// 2^t for |t| <= 0.5, the fractional part of an exponent. Minimax polynomials with a relative error before
/// rounding of 1e-8; of 3e-6 if the result is stored in bf16, whose rounding error is 2e-3.
template <Storage S, class V>
ROOFLM_INLINE V exp2_fraction(const V& t) {
  if constexpr (std::same_as<S, core::Bf16>) {
    V y = t * 0.00966636837F + 0.0559219755F;
    y = y * t + 0.240223497F;
    y = y * t + 0.693121016F;
    return y * t + 1.0F;
  } else {
    V y = t * 0.000154531634F + 0.00133908633F;
    y = y * t + 0.00961808302F;
    y = y * t + 0.0555035695F;
    y = y * t + 0.240226507F;
    y = y * t + 0.693147182F;
    return y * t + 1.0F;
  }
}

/// 2^z from n, the integer nearest to z, and fraction = 2^(z - n).
ROOFLM_INLINE Floats scaled(Floats fraction, Floats n, [[maybe_unused]] Floats z) {
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(kAll, fraction, n);
#else
  const auto exponent = std::bit_cast<Words>(__builtin_convertvector(n, Ints)) << 23U;
  const Floats y = std::bit_cast<Floats>(std::bit_cast<Words>(fraction) + exponent);
  const Floats not_small = z < -126.0F ? Floats{} : y;
  return z >= 128.0F ? splat(__builtin_inff()) : not_small;
#endif
}

/// Clamps infinities to finite values, so that z minus its nearest integer is defined; otherwise `scaled`
/// handles them.
ROOFLM_INLINE Floats finite_below(Floats z) {
#if defined(__AVX512F__)
  return max(splat(-200.0F), z);
#else
  return z;
#endif
}
ROOFLM_INLINE Floats finite(Floats z) {
#if defined(__AVX512F__)
  return finite_below(min(splat(200.0F), z));
#else
  return z;
#endif
}

/// The integers nearest to z.
template <class V>
ROOFLM_INLINE V nearest(const V& z) {
  return each([](Floats x) { return round_to_integer(x); }, z);
}

/// 2^z for finite z <= 0, as softmax needs it; far below, the result is 0. Within 2 ulp in fp32; within a
/// relative 4e-6 for results in bf16.
template <Storage S, class V>
ROOFLM_INLINE V exp2_nonpositive(const V& z) {
  const V n = nearest(z);
  return each([](Floats y, Floats m, Floats all) { return scaled(y, m, all); }, exp2_fraction<S, V>(z - n), n,
              z);
}

constexpr float kLog2eHigh = 1.44269502F;
constexpr float kLog2eLow = 1.92596303e-8F;

/// exp(x), where x has passed through `finite`.
template <Storage S, class V>
ROOFLM_INLINE V exp_of_finite(const V& x) {
  const V z = x * kLog2eHigh;
  const V n = nearest(z);
  const auto fraction = [&] {
    if constexpr (std::same_as<S, core::Bf16>) return z - n;
    // Written out, because the compiler would reuse the rounded product.
    return each([](Floats y, Floats m) { return fma(y, splat(kLog2eHigh), -m) + y * kLog2eLow; }, x, n);
  };
  return each([](Floats y, Floats m, Floats all) { return scaled(y, m, all); },
              exp2_fraction<S, V>(fraction()), n, z);
}

/// exp(x): inf above 88.73, 0 or subnormal below -87.4, NaN for NaN. Within 2 ulp of fp32; for results in
/// bf16 within a relative 4e-6 + 1e-7 |x|.
template <Storage S, class V>
ROOFLM_INLINE V exp(const V& x) {
  return exp_of_finite<S, V>(each([](Floats y) { return finite(y); }, x));
}

/// exp(x - top) where x <= top, -inf or NaN; in bf16 within a relative 4e-6 + 1e-7 (|x| + |top|).
template <Storage S, class V>
ROOFLM_INLINE V exp_below(const V& x, float top) {
  const auto bounded = [](Floats y) { return finite_below(y); };
  if constexpr (std::same_as<S, core::Bf16>) {
    return exp2_nonpositive<S, V>(each(bounded, x * kLog2eHigh + top * -kLog2eHigh));
  } else {
    return exp_of_finite<S, V>(each(bounded, x - top));
  }
}

/// 1 / (1 + exp(-x)), given -x.
template <Storage S, class V>
ROOFLM_INLINE V sigmoid_of_negative(const V& x) {
  return 1.0F / (1.0F + exp<S, V>(x));
}

}  // namespace
}  // namespace rooflm::backends::cpu
