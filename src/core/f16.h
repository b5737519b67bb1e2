// IEEE binary16, the 16-bit float with 10 bits of mantissa.
#pragma once

#include <bit>
#include <cstdint>

namespace rooflm::core {

/// Conversion from fp32 rounds to nearest, ties to even. Values below 2^-14 become multiples of 2^-24; values
/// from 65520 on become infinity; NaN stays NaN.
struct F16 {
  std::uint16_t bits = 0;

  F16() = default;
  explicit F16(float value) {
    constexpr std::uint32_t kInfinity = 0x7f800000U;
    constexpr std::uint32_t kBeyond = 0x47800000U;          // 65536
    constexpr std::uint32_t kSmallestNormal = 0x38800000U;  // 2^-14
    constexpr std::uint32_t kRebias = 112U << 23U;          // difference of the exponent biases: 127 - 15
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16U) & 0x8000U;
    const std::uint32_t magnitude = u & 0x7fffffffU;
    std::uint32_t half = 0;
    if (magnitude >= kBeyond) {
      half = magnitude > kInfinity ? 0x7e00U : 0x7c00U;
    } else if (magnitude < kSmallestNormal) {
      // Subnormals: the last bit of floats from 0.5 on is 2^-24, so the addition rounds.
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    } else {
      half = (magnitude - kRebias + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  explicit operator float() const {
    constexpr float kRebias = 0x1p112F;
    const std::uint32_t magnitude = (bits & 0x7fffU) * 0x2000U;
    const bool is_finite = (bits & 0x7c00U) != 0x7c00U;
    const float value =
        is_finite ? std::bit_cast<float>(magnitude) * kRebias : std::bit_cast<float>(magnitude | 0x7f800000U);
    return (bits & 0x8000U) != 0 ? -value : value;
  }
};
static_assert(sizeof(F16) == 2);

}  // namespace rooflm::core
