// Options that were renamed.
#include "cli/former_names.h"

#include <gtest/gtest.h>

namespace rooflm::cli {
namespace {

TEST(FormerNames, StandForThePresentOnes) {
  EXPECT_EQ(present_name("search-products"), "autotune");
  EXPECT_EQ(present_name("autotune"), "autotune");
  EXPECT_EQ(present_name(""), "");
}

TEST(FormerNames, ArgumentsKeepTheirValues) {
  EXPECT_EQ(present_argument("--search-products"), "--autotune");
  EXPECT_EQ(present_argument("--search-products=none"), "--autotune=none");
  EXPECT_EQ(present_argument("--steps=3"), "--steps=3");
  EXPECT_EQ(present_argument("--"), "--");
  EXPECT_EQ(present_argument("search-products"), "search-products");
}

}  // namespace
}  // namespace rooflm::cli
