// fp32 numbers in two halves: the number in bf16 or fp16, and what it lacks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "core/f16.h"

namespace rooflm::core {

/// A halved tensor stores the upper halves of all its elements first, then the lower ones.
///
/// bf16: the upper half is the number rounded to nearest (ties away from zero), the lower one its lower 16
/// bits, unchanged, so nothing is lost. NaN becomes a canonical NaN.
///
/// fp16: the upper half is the number rounded to nearest (ties to even). Where it is normal, the lower one is
/// the difference of the bits of number and upper half, so nothing is lost. Where it is smaller than 2^-14
/// the lower one counts units of 2^-40: numbers from 2^-17 on lose nothing, but for ties between two fp16
/// numbers (a count of 2^15 is one too many); these and smaller numbers are at most 2^-40 off, less than
/// fp32's own step of numbers from 2^-16 on. From 65520 on a number is infinite, as its copy in fp16 was.
struct Halves {
  std::uint16_t upper = 0, lower = 0;
};

/// `dtype`: bf16 or fp16.
inline Halves split_in_halves(float value, DType dtype) {
  Halves halves;
  if (dtype == DType::f16) {
    constexpr std::uint32_t kLeastNormal = 0x0400U;
    constexpr std::uint32_t kInfinity = 0x7c00U;
    constexpr float kMost = 0x7fff;
    const F16 upper(value);
    const auto rounded = static_cast<float>(upper);
    const std::uint32_t magnitude = upper.bits & 0x7fffU;
    halves.upper = upper.bits;
    if (magnitude < kLeastNormal) {
      const float units = std::clamp(std::rint((value - rounded) * 0x1p40F), -kMost, kMost);
      halves.lower = static_cast<std::uint16_t>(static_cast<std::int16_t>(units));
    } else if (magnitude < kInfinity) {
      const std::uint32_t missing =
          std::bit_cast<std::uint32_t>(value) - std::bit_cast<std::uint32_t>(rounded);
      halves.lower = static_cast<std::uint16_t>(missing & 0xffffU);
    }
    return halves;
  }
  constexpr std::uint32_t kQuietNan = 0x7fc00000U;
  constexpr std::uint32_t kHalf = 0x8000U;
  const std::uint32_t bits = std::isnan(value) ? kQuietNan : std::bit_cast<std::uint32_t>(value);
  halves.upper = static_cast<std::uint16_t>((bits + kHalf) >> 16U);
  halves.lower = static_cast<std::uint16_t>(bits & 0xffffU);
  return halves;
}

/// The number; `dtype` as it was split with.
inline float join_halves(Halves halves, DType dtype) {
  const std::int32_t missing = static_cast<std::int16_t>(halves.lower);
  if (dtype == DType::f16) {
    constexpr std::uint32_t kLeastNormal = 0x0400U;
    F16 upper;
    upper.bits = halves.upper;
    const auto rounded = static_cast<float>(upper);
    if ((halves.upper & 0x7fffU) < kLeastNormal) return rounded + static_cast<float>(missing) * 0x1p-40F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(rounded) + static_cast<std::uint32_t>(missing));
  }
  return std::bit_cast<float>((static_cast<std::uint32_t>(halves.upper) << 16U) +
                              static_cast<std::uint32_t>(missing));
}

}  // namespace rooflm::core
