// The generator against the known answers of its authors (Random123, kat_vectors), and its distributions.
#include "core/rng.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace rooflm::core {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Rng, PhiloxKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822U, 0x0370734413198a2eU, 0x85a308d3243f6a88U),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, UniformStaysBelowOne) {
  EXPECT_EQ(uniform(0), 0.0F);
  EXPECT_LT(uniform(0xffffffffU), 1.0F);
}

TEST(Rng, NormalHasMomentsOfAStandardNormal) {
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  double fourth_powers = 0;
  for (int i = 0; i < kCount; ++i) {
    const double z = normal(42, 7, static_cast<std::uint64_t>(i));
    sum += z;
    squares += z * z;
    fourth_powers += z * z * z * z;
  }
  // Five standard errors: 5/sqrt(n), 5*sqrt(2/n), 5*sqrt(96/n).
  EXPECT_NEAR(sum / kCount, 0.0, 0.016);
  EXPECT_NEAR(squares / kCount, 1.0, 0.0224);
  EXPECT_NEAR(fourth_powers / kCount, 3.0, 0.155);
}

TEST(Rng, StreamsAndSeedsDiffer) {
  EXPECT_EQ(normal(1, 2, 3), normal(1, 2, 3));
  EXPECT_NE(normal(1, 2, 3), normal(1, 2, 4));
  EXPECT_NE(normal(1, 2, 3), normal(1, 3, 3));
  EXPECT_NE(normal(1, 2, 3), normal(2, 2, 3));
}

}  // namespace
}  // namespace rooflm::core
