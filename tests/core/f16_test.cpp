// Half-precision floats: every one of them, ties, and the edges of the range.
#include "core/f16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace rooflm::core {
namespace {

constexpr int kAll = 0x10000;

F16 of_bits(int bits) {
  F16 half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

float as_f16(float value) { return static_cast<float>(F16(value)); }

/// The definition: sign, 5 bits of exponent with a bias of 15, 10 bits of mantissa.
double defined(int bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(F16, EveryFiniteNumberIsWhatItsBitsSayAndComesBack) {
  for (int bits = 0; bits < kAll; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    const auto value = static_cast<float>(of_bits(bits));
    ASSERT_EQ(static_cast<double>(value), defined(bits)) << bits;
    ASSERT_EQ(F16(value).bits, bits);
  }
}

TEST(F16, RoundsToTheNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = defined(bits);
    const double high = defined(bits + 1);
    const double middle = (low + high) / 2;
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(F16(static_cast<float>(middle)).bits, even);
    ASSERT_EQ(F16(std::nextafter(static_cast<float>(middle), 1e9F)).bits, bits + 1);
    ASSERT_EQ(F16(std::nextafter(static_cast<float>(middle), -1e9F)).bits, bits);
  }
}

TEST(F16, KeepsInfinitiesNanAndSignedZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(as_f16(infinity), infinity);
  EXPECT_EQ(as_f16(-infinity), -infinity);
  EXPECT_EQ(as_f16(65519.0F), 65504.0F);
  EXPECT_EQ(as_f16(65520.0F), infinity);
  EXPECT_EQ(as_f16(1e30F), infinity);
  EXPECT_EQ(as_f16(0x1p-25F), 0.0F);
  EXPECT_EQ(as_f16(0x1.8p-25F), 0x1p-24F);
  EXPECT_TRUE(std::isnan(as_f16(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::signbit(as_f16(-0.0F)));
}

}  // namespace
}  // namespace rooflm::core
