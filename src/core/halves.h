// fp32 numbers in two halves: the number in bf16, and the remainder.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace rooflm::core {

/// The upper 16 bits, rounded to nearest (ties away from zero), are the number in bf16. The lower 16 bits are
/// stored unchanged, so nothing is lost. NaN becomes a canonical NaN. A halved tensor stores the upper halves
/// of all its elements first, then the lower ones.
struct Halves {
  std::uint16_t upper = 0, lower = 0;

  Halves() = default;
  explicit Halves(float value) {
    constexpr std::uint32_t kQuietNan = 0x7fc00000U;
    constexpr std::uint32_t kHalf = 0x8000U;
    const std::uint32_t bits = std::isnan(value) ? kQuietNan : std::bit_cast<std::uint32_t>(value);
    upper = static_cast<std::uint16_t>((bits + kHalf) >> 16U);
    lower = static_cast<std::uint16_t>(bits & 0xffffU);
  }
  explicit operator float() const {
    const auto missing = static_cast<std::uint32_t>(static_cast<std::int16_t>(lower));
    return std::bit_cast<float>((static_cast<std::uint32_t>(upper) << 16U) + missing);
  }
};

}  // namespace rooflm::core
