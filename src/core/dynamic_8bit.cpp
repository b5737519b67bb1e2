// Numbers in 8 bits with a magnitude for each block.
#include "core/dynamic_8bit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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
  borders_.back() = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i + 1 < borders_.size(); ++i) borders_[i] = (values_[i] + values_[i + 1]) / 2;
  for (std::uint32_t i = 0; i < kCells; ++i) {
    const auto number = [](std::uint32_t upper) { return std::bit_cast<float>(upper << 16U); };
    const float least = i == 0 ? 0 : number(kLeast + i);
    const float above = number(kLeast + i + 1);  // no number of the cell has this magnitude
    first_codes_[i] = static_cast<std::uint8_t>(std::ranges::lower_bound(borders_, least) - borders_.begin());
    first_codes_[kCells + i] =
        static_cast<std::uint8_t>(std::ranges::upper_bound(borders_, -above) - borders_.begin());
  }
}

}  // namespace rooflm::core
