// Numbers in halves: what is lost, and that the upper half is the nearest number of 16 bits.
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
    const auto back = join_halves(split_in_halves(value, DType::bf16), DType::bf16);
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
    upper.bits = split_in_halves(value, DType::bf16).upper;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(upper))) << std::hex << bits;
    } else if ((bits & 0xffffU) == kTie) {
      EXPECT_EQ(upper.bits, (bits >> 16U) + 1) << std::hex << bits;  // away from zero
    } else {
      EXPECT_EQ(upper.bits, Bf16(value).bits) << std::hex << bits;
    }
  }
}

/// Samples, and numbers of all sizes that fp16 has.
std::vector<float> samples_of_fp16() {
  std::vector<float> values;
  for (const std::uint32_t bits : samples()) values.push_back(std::bit_cast<float>(bits));
  for (int exponent = -50; exponent < 17; ++exponent) {
    values.push_back(std::ldexp(1.0F, exponent));
    values.push_back(std::ldexp(-1.5F, exponent));
    for (std::uint64_t i = 0; i < 2000; ++i)
      values.push_back(std::ldexp(normal(3, static_cast<std::uint64_t>(exponent + 60), i), exponent));
  }
  return values;
}

TEST(HalvesOfFp16, LoseNothingThatCounts) {
  constexpr float kInfinite = 65520;
  for (const float value : samples_of_fp16()) {
    const Halves halves = split_in_halves(value, DType::f16);
    const float back = join_halves(halves, DType::f16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(back));
    } else if (std::abs(value) >= kInfinite) {
      EXPECT_EQ(back, std::copysign(std::numeric_limits<float>::infinity(), value)) << value;
    } else if (std::abs(value) >= 0x1p-17F) {
      EXPECT_EQ(back, value);
    } else {
      EXPECT_NEAR(back, value, 0x1p-40);
    }
  }
}

TEST(HalvesOfFp16, TheUpperOneIsTheNearestFp16Number) {
  for (const float value : samples_of_fp16()) {
    const Halves halves = split_in_halves(value, DType::f16);
    EXPECT_EQ(halves.upper, F16(value).bits) << value;
    const Halves again = split_in_halves(join_halves(halves, DType::f16), DType::f16);
    if (std::isnan(value) || value == 0) continue;  // the sign of zero may go
    EXPECT_EQ(again.upper & 0x7fffU, halves.upper & 0x7fffU) << value;
    EXPECT_EQ(again.lower, halves.lower) << value;
  }
}

}  // namespace
}  // namespace rooflm::core
