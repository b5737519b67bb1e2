// Weights as codes and scales: bytes, errors, and what cannot be packed.
#include "core/packed_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/rng.h"

namespace rooflm::core {
namespace {

constexpr std::int64_t kRows = 6, kWidth = 2048;
constexpr WeightFormat kFormats[] = {WeightFormat::int8, WeightFormat::int4, WeightFormat::nf4,
                                     WeightFormat::fp8, WeightFormat::sparse};

std::vector<float> some_weights() {
  std::vector<float> values(kRows * kWidth);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(philox(1, 2, i)[0]) * 0x1p-32F - 0.5F;
  return values;
}

std::vector<std::byte> packed(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(packed_bytes(dtype, kRows * kWidth, kWidth)));
  pack(dtype, kRows, kWidth, values, bytes.data());
  return bytes;
}

std::vector<float> unpacked(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(kRows * kWidth);
  PackedMatrix{dtype, kRows, kWidth, bytes.data()}.unpack(0, 0, kRows * kWidth, values.data());
  return values;
}

TEST(PackedWeights, BytesAreThoseOfCodesAndScales) {
  EXPECT_EQ(packed_bytes(DType::int8, 6 * 2048, 2048), 6 * (2048 + 4));
  EXPECT_EQ(packed_bytes(DType::fp8_rows, 6 * 2048, 2048), 6 * (2048 + 4));
  EXPECT_EQ(packed_bytes(DType::int4, 6 * 2048, 2048), 6 * (1024 + 16 * 4));
  EXPECT_EQ(packed_bytes(DType::nf4, 6 * 2048, 2048), 6 * (1024 + 32) + 3 * 8);
  EXPECT_EQ(packed_bytes(DType::sparse, 6 * 2048, 2048), 6 * (2048 + 256));
}

/// Numbers in [-0.5, 0.5]: half a step of the largest scale, and of fp8 half of the last of four bits.
TEST(PackedWeights, ErrorsAreThoseOfRoundingToNearest) {
  const std::vector<float> values = some_weights();
  const std::vector<std::pair<DType, float>> most = {{DType::int8, 0.5F / 127.5F / 2},
                                                     {DType::int4, 0.5F / 7.5F / 2},
                                                     {DType::nf4, 0.5F * (1 - 0.6961928F) / 2 + 0.005F},
                                                     {DType::fp8_rows, 0.5F / 28}};
  for (const auto& [dtype, error] : most) {
    const std::vector<float> back = unpacked(dtype, packed(dtype, values));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(back[i], values[i], error * 1.0001F) << name_of(dtype) << " " << i;
  }
}

TEST(PackedWeights, ARowOfZerosStaysZero) {
  const std::vector<float> zeros(kRows * kWidth, 0.0F);
  for (const WeightFormat format : kFormats) {
    for (const float value : unpacked(dtype_of(format), packed(dtype_of(format), zeros)))
      ASSERT_EQ(value, 0.0F);
  }
}

/// Scales of nf4 are within half a step of 8 bits of the block's largest magnitude.
TEST(PackedWeights, ScalesOfNf4AreQuantisedTwice) {
  std::vector<float> values(kRows * kWidth, 0.0F);
  for (std::size_t i = 0; i < values.size(); i += 64) values[i] = 1.0F + static_cast<float>(i % 640) / 640;
  const std::vector<float> back = unpacked(DType::nf4, packed(DType::nf4, values));
  for (std::size_t i = 0; i < values.size(); i += 64) EXPECT_NEAR(back[i], values[i], 0.5F * 0.01F) << i;
}

TEST(PackedWeights, TheTwoLargestOfFourAreKept) {
  std::vector<float> values(kRows * kWidth, 0.0F);
  const float four[] = {0.25F, -1.0F, 0.5F, -0.5F};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = four[i % 4];
  std::vector<float> pruned = values;
  prune_2_of_4(pruned);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(pruned[i], i % 4 == 1 || i % 4 == 2 ? values[i] : 0.0F) << i;  // of equal ones the first
  EXPECT_EQ(unpacked(DType::sparse, packed(DType::sparse, values)), pruned);
}

TEST(PackedWeights, RowsMustBeWholeGroups) {
  EXPECT_EQ(why_not_packed(DType::int4, 10, 256), "");
  EXPECT_EQ(why_not_packed(DType::int8, 10, 48), "");
  EXPECT_NE(why_not_packed(DType::int8, 10, 40), "");
  EXPECT_NE(why_not_packed(DType::int4, 10, 192), "");
  EXPECT_NE(why_not_packed(DType::nf4, 10, 96), "");
  EXPECT_NE(why_not_packed(DType::nf4, 10, 64), "");  // 640 numbers
  EXPECT_EQ(why_not_packed(DType::nf4, 64, 64), "");
}

}  // namespace
}  // namespace rooflm::core
