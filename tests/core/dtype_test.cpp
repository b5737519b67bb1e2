// Brain floats: rounding to nearest even, and the values that are not numbers.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rooflm::core {
namespace {

float as_bf16(float value) { return static_cast<float>(Bf16(value)); }

TEST(Bf16, KeepsEightBitsAndRoundsTiesToEven) {
  EXPECT_EQ(as_bf16(1.0F), 1.0F);
  EXPECT_EQ(as_bf16(-0.15625F), -0.15625F);
  EXPECT_EQ(as_bf16(1.0F + 0x1p-8F), 1.0F);                       // a tie, down to even
  EXPECT_EQ(as_bf16(1.0F + 3 * 0x1p-8F), 1.0F + 4 * 0x1p-8F);     // a tie, up to even
  EXPECT_EQ(as_bf16(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);  // just above a tie
}

TEST(Bf16, KeepsInfinitiesNanAndSignedZero) {
  EXPECT_EQ(as_bf16(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(as_bf16(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(as_bf16(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(as_bf16(std::bit_cast<float>(0x7f800001U))));  // its payload is in the lower half
  EXPECT_TRUE(std::signbit(as_bf16(-0.0F)));
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f64), 8U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::f32), "fp32");
}

TEST(DType, TableIsInTheOrderOfTheEnumeration) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(kDTypes[i].dtype), i);
}

TEST(DType, IsFoundByEachOfItsNames) {
  for (const DTypeFacts& facts : kDTypes) {
    EXPECT_EQ(find_dtype(&DTypeFacts::name, facts.name), facts.dtype);
    EXPECT_EQ(find_dtype(&DTypeFacts::stored_name, facts.stored_name), facts.dtype);
  }
  EXPECT_EQ(find_dtype(&DTypeFacts::name, "fp12"), std::nullopt);
}

}  // namespace
}  // namespace rooflm::core
