// Numbers in 8 bits with a magnitude for each block: Dettmers et al., "8-bit optimizers via block-wise
// quantization", 2021, as bitsandbytes has them.
#pragma once

#include <array>
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
  [[nodiscard]] const std::array<float, 256>& values() const { return values_; }
  /// Of the value nearest to x.
  [[nodiscard]] std::uint8_t code(float x) const;

 private:
  std::array<float, 256> values_{};
  std::array<float, 255> borders_{};  ///< between one value and the next
};

}  // namespace rooflm::core
