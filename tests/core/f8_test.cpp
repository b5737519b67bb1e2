// Floats of eight bits: every one of them, ties, saturation, and what is no number.
#include "core/f8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace rooflm::core {
namespace {

template <class T>
struct Definition;
/// Bits of mantissa, bias of the exponent, and the bits of the largest finite number (OCP 8-bit Floating
/// Point Specification, table 1).
template <>
struct Definition<F8E4M3> {
  static constexpr int kMantissa = 3, kBias = 7, kLargest = 0x7e;
};
template <>
struct Definition<F8E5M2> {
  static constexpr int kMantissa = 2, kBias = 15, kLargest = 0x7b;
};

template <class T>
class F8Of : public testing::Test {
 protected:
  using Format = Definition<T>;
  static T of_bits(int bits) {
    T value;
    value.bits = static_cast<std::uint8_t>(bits);
    return value;
  }
  static double defined(int bits) {
    const int one = 1 << Format::kMantissa;
    const int exponent = (bits & 0x7f) >> Format::kMantissa;
    const int mantissa = bits & (one - 1);
    const double sign = (bits & 0x80) != 0 ? -1 : 1;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - Format::kBias - Format::kMantissa);
    return sign * std::ldexp(one + mantissa, exponent - Format::kBias - Format::kMantissa);
  }
  static int bits_of(double value) { return T(static_cast<float>(value)).bits; }
};

using Types = testing::Types<F8E4M3, F8E5M2>;
TYPED_TEST_SUITE(F8Of, Types);

TYPED_TEST(F8Of, EveryFiniteNumberIsWhatItsBitsSayAndComesBack) {
  for (int bits = 0; bits < 0x100; ++bits) {
    if ((bits & 0x7f) > TestFixture::Format::kLargest) continue;
    const auto value = static_cast<float>(this->of_bits(bits));
    ASSERT_EQ(static_cast<double>(value), this->defined(bits)) << bits;
    ASSERT_EQ(TypeParam(value).bits, bits);
  }
  EXPECT_EQ(this->defined(TestFixture::Format::kLargest), static_cast<double>(TypeParam::kLargest));
}

TYPED_TEST(F8Of, RoundsToTheNearestAndTiesToEven) {
  for (int bits = 0; bits < TestFixture::Format::kLargest; ++bits) {
    const double middle = (this->defined(bits) + this->defined(bits + 1)) / 2;
    const int even = bits % 2 == 0 ? bits : bits + 1;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(this->bits_of(middle), even);
    ASSERT_EQ(this->bits_of(-middle), even | 0x80);
    ASSERT_EQ(TypeParam(std::nextafter(tie, 1e9F)).bits, bits + 1);
    ASSERT_EQ(TypeParam(std::nextafter(tie, -1e9F)).bits, bits);
  }
}

TYPED_TEST(F8Of, SaturatesAndKeepsNanAndSignedZero) {
  const int largest = TestFixture::Format::kLargest;
  for (const double scale : {1.01, 1.2, 2.0, 1e30}) {
    EXPECT_EQ(this->bits_of(scale * static_cast<double>(TypeParam::kLargest)), largest);
    EXPECT_EQ(this->bits_of(-scale * static_cast<double>(TypeParam::kLargest)), largest | 0x80);
  }
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::infinity()).bits, largest);
  EXPECT_EQ(TypeParam(-0.0F).bits, 0x80);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(this->of_bits(0x7f))));
}

TEST(F8, OnlyE5M2HasInfinities) {
  F8E5M2 infinity;
  infinity.bits = 0x7c;
  EXPECT_EQ(static_cast<float>(infinity), std::numeric_limits<float>::infinity());
  F8E4M3 number;
  number.bits = 0x7c;
  EXPECT_EQ(static_cast<float>(number), 384.0F);
}

}  // namespace
}  // namespace rooflm::core
