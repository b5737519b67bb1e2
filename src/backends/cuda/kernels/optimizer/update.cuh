// What kernels of updates share: the factor of gradients, weights in halves, four neighbours at a time.
#pragma once

#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// The factor of the gradients: clipping (NaN stays NaN) and the inverse loss scale.
__device__ inline float factor_of(const UpdateStep& step) {
  const float inverse_scale = step.scaled ? step.hyper[3] : 1.0F;
  if (step.norm == nullptr) return inverse_scale;
  const float ratio = step.max_norm / (*step.norm + 1e-6F);
  return ratio >= 1.0F ? inverse_scale : ratio * inverse_scale;
}

__device__ inline bool is_skipped(const UpdateStep& step) { return step.scaled && step.hyper[3] == 0.0F; }

// core::join_halves and core::split_in_halves; the last argument gives the dtype.

__device__ inline float join(unsigned upper, int lower, const bf16* /*dtype*/) {
  return __uint_as_float((upper << 16) + static_cast<unsigned>(lower));
}
__device__ inline float join(unsigned upper, int lower, const fp16* /*dtype*/) {
  const float rounded = __half2float(__ushort_as_half(static_cast<unsigned short>(upper)));
  const float whole = __uint_as_float(__float_as_uint(rounded) + static_cast<unsigned>(lower));
  return (upper & 0x7c00U) == 0 ? rounded + static_cast<float>(lower) * 0x1p-40F : whole;
}

struct Halves {
  unsigned upper, lower;  // 16 bits each
};

__device__ inline Halves split(float x, const bf16* /*dtype*/) {
  const unsigned bits = isnan(x) ? 0x7fc00000U : __float_as_uint(x);
  return {(bits + 0x8000U) >> 16, bits & 0xffffU};
}
__device__ inline Halves split(float x, const fp16* /*dtype*/) {
  const __half half = __float2half_rn(x);
  const float rounded = __half2float(half);
  const unsigned upper = __half_as_ushort(half);
  const unsigned exponent = upper & 0x7c00U;
  const float units = fminf(fmaxf(rintf((x - rounded) * 0x1p40F), -32767.0F), 32767.0F);
  unsigned lower = exponent == 0 ? static_cast<unsigned>(static_cast<int>(units))
                                 : __float_as_uint(x) - __float_as_uint(rounded);
  if (exponent == 0x7c00U) lower = 0;
  return {upper, lower & 0xffffU};
}

/// Joins two fp32 numbers from a word of upper and a word of lower halves, which are signed.
template <class T>
__device__ float2 join_pair(unsigned upper, unsigned lower, const T* dtype) {
  const auto signed_half = [](unsigned half) { return static_cast<int>(static_cast<short>(half)); };
  return {join(upper & 0xffffU, signed_half(lower & 0xffffU), dtype),
          join(upper >> 16, signed_half(lower >> 16), dtype)};
}

/// The word of two numbers' upper halves, and the word of their lower halves.
template <class T>
__device__ uint2 split_pair(float first, float second, const T* dtype) {
  const Halves a = split(first, dtype);
  const Halves b = split(second, dtype);
  return {a.upper | b.upper << 16, a.lower | b.lower << 16};
}

__device__ inline float4 as_floats(const uint4& words) {
  return {__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
          __uint_as_float(words.w)};
}

/// Calls body with a null pointer to the type of a 16-bit dtype: bf16 or fp16.
template <class Body>
__device__ auto with_half(core::DType dtype, const Body& body) {
  return dtype == core::DType::bf16 ? body(static_cast<const bf16*>(nullptr))
                                    : body(static_cast<const fp16*>(nullptr));
}

/// Bits of bf16, rounded up or down at random as the reference does (cpu/reference/adamw.cpp).
__device__ inline unsigned rounded_at_random(float value, std::int64_t place, unsigned salt) {
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7fffffffU;
  if (magnitude >= 0x7f800000U) return (bits | (magnitude > 0x7f800000U ? 0x400000U : 0U)) >> 16;
  std::uint64_t hash = (static_cast<std::uint64_t>(place) << 32U) ^ bits ^ (std::uint64_t{salt} << 13U);
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return (bits + static_cast<unsigned>((hash >> 40U) & 0xffffU)) >> 16;
}

/// Four neighbours of a tensor, so a warp's accesses to fp32 arrays are contiguous. Values are converted
/// where they are used, so a thread's loads are in flight together.
struct Four {
  const UpdatedTensor* tensor;
  std::int64_t first;
  bool whole;  ///< all four exist and can be accessed at once

  __device__ Four(const UpdatedTensor& of, std::int64_t from) : tensor(&of), first(from) {
    const auto bits =
        reinterpret_cast<std::uintptr_t>(of.parameter) | reinterpret_cast<std::uintptr_t>(of.gradient) |
        reinterpret_cast<std::uintptr_t>(of.moment1) | reinterpret_cast<std::uintptr_t>(of.moment2) |
        reinterpret_cast<std::uintptr_t>(of.copy);
    whole = bits % sizeof(float4) == 0 && first + 4 <= of.count;
  }
  __device__ uint4 load(const float* from) const {
    if (whole) return *reinterpret_cast<const uint4*>(from + first);
    const auto word = [&](int i) {
      return first + i < tensor->count ? __float_as_uint(from[first + i]) : 0U;
    };
    return {word(0), word(1), word(2), word(3)};
  }
  __device__ uint2 load(const std::uint16_t* from) const {
    if (whole) return *reinterpret_cast<const uint2*>(from + first);
    const auto half = [&](int i) { return first + i < tensor->count ? unsigned{from[first + i]} : 0U; };
    return {half(0) | half(1) << 16, half(2) | half(3) << 16};
  }
  [[nodiscard]] __device__ bool is_halved() const { return tensor->halves != core::DType::f32; }
  /// Raw: fp32, or two words of upper and two of lower halves.
  __device__ uint4 load_parameter() const {
    if (!is_halved()) return load(static_cast<const float*>(tensor->parameter));
    const auto* halves = static_cast<const std::uint16_t*>(tensor->parameter);
    const uint2 upper = load(halves);
    const uint2 lower = load(halves + tensor->count);
    return {upper.x, upper.y, lower.x, lower.y};
  }
  __device__ float4 parameter_from(const uint4& loaded) const {
    if (!is_halved()) return as_floats(loaded);
    return with_half(tensor->halves, [&](const auto* type) -> float4 {
      const float2 a = join_pair(loaded.x, loaded.z, type);
      const float2 b = join_pair(loaded.y, loaded.w, type);
      return {a.x, a.y, b.x, b.y};
    });
  }
  [[nodiscard]] __device__ bool has_half_gradient() const {
    return tensor->gradient_dtype != core::DType::f32;
  }
  /// Raw: fp32, or two words of 16-bit numbers. `shift`: bytes from the rank's own gradient to another's.
  __device__ uint4 load_gradient(std::ptrdiff_t shift) const {
    const auto* gradient = static_cast<const char*>(tensor->gradient) + shift;
    if (!has_half_gradient()) return load(reinterpret_cast<const float*>(gradient));
    const uint2 words = load(reinterpret_cast<const std::uint16_t*>(gradient));
    return {words.x, words.y, 0, 0};
  }
  __device__ float4 gradient_from(const uint4& loaded) const {
    if (!has_half_gradient()) return as_floats(loaded);
    return with_half(tensor->gradient_dtype, [&](const auto* type) -> float4 {
      const float2 a = unpack_pair(loaded.x, type);
      const float2 b = unpack_pair(loaded.y, type);
      return {a.x, a.y, b.x, b.y};
    });
  }
  /// As the gradient's dtype holds them.
  __device__ float4 rounded_as_gradient(const float4& values) const {
    if (!has_half_gradient()) return values;
    return gradient_from(with_half(tensor->gradient_dtype, [&](const auto* type) -> uint4 {
      return {pack_pair(values.x, values.y, type), pack_pair(values.z, values.w, type), 0, 0};
    }));
  }
  __device__ void store(float* to, const float4& values) const {
    if (whole) {
      *reinterpret_cast<float4*>(to + first) = values;
      return;
    }
    const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < tensor->count) to[first + i] = each[i];
    }
  }
  __device__ void store(std::uint16_t* to, const uint2& words) const {
    if (whole) {
      *reinterpret_cast<uint2*>(to + first) = words;
      return;
    }
    const unsigned each[4] = {words.x, words.x >> 16, words.y, words.y >> 16};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < tensor->count) to[first + i] = static_cast<std::uint16_t>(each[i]);
    }
  }
  /// The moment at `from`, of M.
  template <class M>
  __device__ uint4 load_moment(const void* from) const {
    if constexpr (sizeof(M) == sizeof(float)) {
      return load(static_cast<const float*>(from));
    } else {
      const uint2 words = load(static_cast<const std::uint16_t*>(from));
      return {words.x, words.y, 0, 0};
    }
  }
  template <class M>
  __device__ float4 moment_from(const uint4& loaded) const {
    if constexpr (sizeof(M) == sizeof(float)) {
      return as_floats(loaded);
    } else {
      const float2 a = unpack_pair(loaded.x, static_cast<const bf16*>(nullptr));
      const float2 b = unpack_pair(loaded.y, static_cast<const bf16*>(nullptr));
      return {a.x, a.y, b.x, b.y};
    }
  }
  /// `salt`: a number that differs from step to step.
  template <class M>
  __device__ void store_moment(void* to, const float4& values, unsigned salt) const {
    if constexpr (sizeof(M) == sizeof(float)) {
      store(static_cast<float*>(to), values);
    } else {
      const unsigned a = rounded_at_random(values.x, first, salt);
      const unsigned b = rounded_at_random(values.y, first + 1, salt);
      const unsigned c = rounded_at_random(values.z, first + 2, salt);
      const unsigned d = rounded_at_random(values.w, first + 3, salt);
      store(static_cast<std::uint16_t*>(to), uint2{a | b << 16, c | d << 16});
    }
  }
  __device__ void store_parameter(const float4& p, core::DType copy_dtype) const {
    if (is_halved()) {
      with_half(tensor->halves, [&](const auto* type) {
        const uint2 a = split_pair(p.x, p.y, type);
        const uint2 b = split_pair(p.z, p.w, type);
        auto* halves = static_cast<std::uint16_t*>(tensor->parameter);
        store(halves, uint2{a.x, b.x});
        store(halves + tensor->count, uint2{a.y, b.y});
      });
      return;
    }
    store(static_cast<float*>(tensor->parameter), p);
    if (tensor->copy == nullptr) return;
    with_half(copy_dtype, [&](const auto* type) {
      store(static_cast<std::uint16_t*>(tensor->copy),
            uint2{pack_pair(p.x, p.y, type), pack_pair(p.z, p.w, type)});
    });
  }
};

/// What a rule of one weight does to four neighbours.
template <class Rule>
__device__ void for_four(const Rule& rule, float4& p, const float4& gradient, float4& m, float4& v) {
  rule(p.x, gradient.x, m.x, v.x);
  rule(p.y, gradient.y, m.y, v.y);
  rule(p.z, gradient.z, m.z, v.z);
  rule(p.w, gradient.w, m.w, v.w);
}

/// One step of AdamW for one weight.
struct AdamWRule {
  static constexpr int kMoments = 2;
  float kept, rate, inverse2, factor, eps;
  core::MovingAverage beta1, beta2;

  __device__ explicit AdamWRule(const UpdateStep& step)
      : kept(1.0F - step.hyper[0] * step.weight_decay),
        rate(step.hyper[0] / step.hyper[1]),
        inverse2(1.0F / step.hyper[2]),
        factor(factor_of(step)),
        eps(step.eps),
        beta1(step.beta1),
        beta2(step.beta2) {}
  __device__ void operator()(float& p, float gradient, float& m, float& v) const {
    const float g = factor * gradient;
    m = beta1.old * m + beta1.fresh * g;
    v = beta2.old * v + beta2.fresh * (g * g);
    p = kept * p - rate * m / (sqrtf(inverse2 * v) + eps);
  }
};

/// One step of Lion for one weight.
struct LionRule {
  static constexpr int kMoments = 1;
  float kept, rate, factor;
  core::MovingAverage beta1, beta2;

  __device__ explicit LionRule(const UpdateStep& step)
      : kept(1.0F - step.hyper[0] * step.weight_decay),
        rate(step.hyper[0]),
        factor(factor_of(step)),
        beta1(step.beta1),
        beta2(step.beta2) {}
  __device__ void operator()(float& p, float gradient, float& m, float& /*v*/) const {
    const float g = factor * gradient;
    const float u = beta1.old * m + beta1.fresh * g;
    m = beta2.old * m + beta2.fresh * g;
    const float sign = u > 0.0F ? 1.0F : u < 0.0F ? -1.0F : u;  // NaN stays NaN
    p = kept * p - rate * sign;
  }
};

}  // namespace rooflm::backends::cuda
