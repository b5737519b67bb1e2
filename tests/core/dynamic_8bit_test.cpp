// Codes of 8 bits: each number gets the code of the value nearest to it.
#include "core/dynamic_8bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"

namespace rooflm::core {
namespace {

TEST(Dynamic8Bit, CodesAreThoseOfASearch) {
  for (const bool is_signed : {true, false}) {
    const Dynamic8Bit kind(is_signed);
    const auto& borders = kind.borders();
    std::vector<float> samples{0.0F, -0.0F, 1e-30F, 1.0F, 0x1p-23F};
    for (std::size_t code = 0; code < 256; ++code) {
      EXPECT_EQ(kind.code(kind.value(static_cast<std::uint8_t>(code))), code);
      const float border = code < 255 ? borders[code] : 1.0F;
      samples.insert(samples.end(), {border, std::nextafter(border, -2.0F), std::nextafter(border, 1.0F)});
    }
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const auto bits = philox(1, 2, i);
      const double exponent = -25 * static_cast<double>(bits[1]) / 0x1p32;
      samples.push_back(static_cast<float>(std::exp2(exponent) * static_cast<double>(bits[0]) / 0x1p32));
    }
    for (const float sample : std::vector<float>(samples)) samples.push_back(-sample);
    for (const float x : samples) {
      const auto found = std::ranges::lower_bound(borders, x) - borders.begin();
      ASSERT_EQ(kind.code(x), found) << x;
    }
  }
}

}  // namespace
}  // namespace rooflm::core
