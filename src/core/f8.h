// The two 8-bit floats of matmuls (OCP 8-bit Floating Point Specification, 2023): e4m3 without infinities,
// e5m2 like IEEE formats.
#pragma once

#include <bit>
#include <cstdint>

namespace rooflm::core {

/// `kMantissa` mantissa bits and 7 - kMantissa exponent bits. Conversion from fp32 rounds to nearest, ties to
/// even, and saturates: larger values and infinities become kLargest, as in GPU conversions
/// (cvt.rn.satfinite). NaN stays NaN.
template <int kMantissa>
struct F8 {
  static_assert(kMantissa == 3 || kMantissa == 2);
  static constexpr bool kIsE4M3 = kMantissa == 3;
  static constexpr float kLargest = kIsE4M3 ? 448.0F : 57344.0F;

  std::uint8_t bits = 0;

  F8() = default;
  explicit F8(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 24U) & 0x80U;
    bits = static_cast<std::uint8_t>(sign | rounded(u & 0x7fffffffU));
  }
  explicit operator float() const {
    const std::uint32_t magnitude = bits & 0x7fU;
    float value = std::bit_cast<float>(magnitude << kDropped) * std::bit_cast<float>((127U + kRebias) << 23U);
    if (magnitude > kLargestBits) {
      const bool is_infinity = !kIsE4M3 && magnitude == kLargestBits + 1;
      value = std::bit_cast<float>(is_infinity ? 0x7f800000U : 0x7fc00000U);
    }
    return (bits & 0x80U) != 0 ? -value : value;
  }

 private:
  /// Mantissa bits of fp32 that are dropped.
  static constexpr std::uint32_t kDropped = 23U - kMantissa;
  static constexpr std::uint32_t kBias = kIsE4M3 ? 7 : 15;  ///< exponent bias
  /// Difference to the exponent bias of fp32.
  static constexpr std::uint32_t kRebias = 127U - kBias;
  static constexpr std::uint32_t kLargestBits = kIsE4M3 ? 0x7eU : 0x7bU;  ///< bits of kLargest
  static constexpr std::uint32_t kNan = 0x7fU;                            ///< as GPUs encode it
  static constexpr std::uint32_t kSmallestNormal = (kRebias + 1) << 23U;
  /// Subnormals: the last bit of floats from this value on is the smallest number of this type, so adding it
  /// rounds.
  static constexpr std::uint32_t kShift = (kRebias + 1 + kDropped) << 23U;

  static std::uint32_t rounded(std::uint32_t magnitude) {
    if (magnitude > 0x7f800000U) return kNan;
    if (magnitude < kSmallestNormal) {
      const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kShift);
      return std::bit_cast<std::uint32_t>(sum) - kShift;
    }
    const std::uint32_t half = (1U << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1U);
    const std::uint32_t code = ((magnitude + half) >> kDropped) - (kRebias << kMantissa);
    return code < kLargestBits ? code : kLargestBits;
  }
};

using F8E4M3 = F8<3>;
using F8E5M2 = F8<2>;
static_assert(sizeof(F8E4M3) == 1 && sizeof(F8E5M2) == 1);

}  // namespace rooflm::core
