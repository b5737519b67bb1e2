// Numbers in 8 bits with a magnitude for each block.
#include "core/dynamic_8bit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rooflm::core {

Dynamic8Bit::Dynamic8Bit(bool is_signed) {
  constexpr int kDecades = 7;
  std::size_t count = 0;
  const auto add = [&](double value) { values_.at(count++) = static_cast<float>(value); };
  for (int decade = 0; decade < kDecades; ++decade) {
    const int codes = is_signed ? 1 << decade : 2 << decade;
    const double scale = std::pow(10.0, decade - kDecades + 1);
    for (int i = 0; i < codes; ++i) {  // the middle of each of so many equal parts of [0.1, 1]
      const double value = scale * (0.1 + 0.9 * (i + 0.5) / codes);
      add(value);
      if (is_signed) add(-value);
    }
  }
  add(0);
  add(1);
  std::ranges::sort(values_);
  for (std::size_t i = 0; i < borders_.size(); ++i) borders_[i] = (values_[i] + values_[i + 1]) / 2;
}

std::uint8_t Dynamic8Bit::code(float x) const {
  return static_cast<std::uint8_t>(std::ranges::lower_bound(borders_, x) - borders_.begin());
}

}  // namespace rooflm::core
