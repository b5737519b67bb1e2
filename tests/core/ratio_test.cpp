// Ratios of what may be absent, and MFU.
#include "core/ratio.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

TEST(Ratio, IsAbsentWhereAPartIs) {
  EXPECT_EQ(ratio_of(6, 3), 2);
  EXPECT_EQ(ratio_of(std::nullopt, 3), std::nullopt);
  EXPECT_EQ(ratio_of(6, std::nullopt), std::nullopt);
  EXPECT_EQ(ratio_of(6, 0), std::nullopt);
}

TEST(Ratio, MfuIsModelFlopPerSecondOfThePeak) {
  EXPECT_EQ(mfu_of(8e9, 0.5, 64e9), 0.25);
  EXPECT_EQ(mfu_of(8e9, 0.5, std::nullopt), std::nullopt);
  EXPECT_EQ(mfu_of(8e9, 0, 64e9), std::nullopt);
}

}  // namespace
}  // namespace rooflm::core
