// Numbers in 8 bits with a magnitude for each block: Dettmers et al., "8-bit optimizers via block-wise
// quantization", 2021, as bitsandbytes has them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rooflm::core {

/// Elements that share a magnitude.
inline constexpr std::int64_t kBlock8 = 256;

/// What the codes of a kind mean, ascending, in [-1, 1] or [0, 1]: a decade has twice as many codes as the
/// one below it, of which the smallest begins at 1e-7.
class Dynamic8Bit {
 public:
  explicit Dynamic8Bit(bool is_signed);

  [[nodiscard]] float value(std::uint8_t code) const { return values_[code]; }
  /// Of the value nearest to x, which is in [-1, 1]; of two as near, the lower one's. NaN: any.
  [[nodiscard]] std::uint8_t code(float x) const {
    const std::uint8_t first = first_codes_[cell_of(x)];
    return static_cast<std::uint8_t>(first + (borders_[first] < x ? 1 : 0));
  }

  /// Numbers whose sign, exponent and upper 7 bits of the mantissa are alike make a cell, which has one
  /// border at most. Those below 2^-23 in magnitude have none. Of cell i: upper 16 bits kLeast + i; negative
  /// ones follow.
  static constexpr std::uint32_t kLeast = 0x3400, kMost = 0x3f80, kCells = kMost - kLeast + 1;
  /// For kernels that find codes by themselves: the tables of value() and code().
  [[nodiscard]] const auto& values() const { return values_; }
  [[nodiscard]] const auto& borders() const { return borders_; }
  [[nodiscard]] const auto& first_codes() const { return first_codes_; }

 private:
  static std::size_t cell_of(float x) {
    const std::uint32_t upper = std::bit_cast<std::uint32_t>(x) >> 16U;
    const std::uint32_t magnitude = std::clamp(upper & 0x7fffU, kLeast, kMost) - kLeast;
    return magnitude + (upper >> 15U) * kCells;
  }

  std::array<float, 256> values_{};
  std::array<float, 256> borders_{};  ///< between one value and the next; the last is infinite
  std::array<std::uint8_t, std::size_t{2} * kCells> first_codes_{};  ///< of the least number in each cell
};

}  // namespace rooflm::core
