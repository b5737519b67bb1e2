// Numbers in halves: nothing is lost, and the upper half is the nearest bf16 number.
#include "core/halves.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "core/rng.h"

namespace rooflm::core {
namespace {

/// Bits of all kinds of numbers, and the edges between them.
std::vector<std::uint32_t> samples() {
  std::vector<std::uint32_t> bits{0U, 0x80000000U, 0x7f800000U, 0xff800000U, 0x7f7fffffU, 0x00007fffU};
  for (std::uint32_t low : {0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
    for (std::uint32_t high : {0x3f80U, 0x3f81U, 0x0000U, 0xc2ffU}) bits.push_back(high << 16U | low);
  }
  for (std::uint64_t i = 0; i < 100'000; ++i) bits.push_back(philox(1, 2, i)[0]);
  return bits;
}

TEST(Halves, LoseNothing) {
  for (const std::uint32_t bits : samples()) {
    const auto value = std::bit_cast<float>(bits);
    const auto back = static_cast<float>(Halves(value));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(back)) << std::hex << bits;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(back), bits) << std::hex << bits;
    }
  }
}

TEST(Halves, TheUpperOneIsTheNearestBf16Number) {
  constexpr std::uint32_t kTie = 0x8000U;
  for (const std::uint32_t bits : samples()) {
    const auto value = std::bit_cast<float>(bits);
    Bf16 upper;
    upper.bits = Halves(value).upper;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(upper))) << std::hex << bits;
    } else if ((bits & 0xffffU) == kTie) {
      EXPECT_EQ(upper.bits, (bits >> 16U) + 1) << std::hex << bits;  // away from zero
    } else {
      EXPECT_EQ(upper.bits, Bf16(value).bits) << std::hex << bits;
    }
  }
}

}  // namespace
}  // namespace rooflm::core
