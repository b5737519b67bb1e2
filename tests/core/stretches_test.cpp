// Stretches of time: what several cover together, and what of them lies outside of others.
#include "core/stretches.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

using Stretches = std::vector<Stretch>;

TEST(Stretches, OnesThatMeetAreOne) {
  EXPECT_EQ(covered({{5, 8}, {0, 2}, {2, 3}, {6, 7}, {9, 9}}), (Stretches{{0, 3}, {5, 8}}));
  EXPECT_EQ(covered({}), Stretches{});
}

TEST(Stretches, WhatLiesOutside) {
  EXPECT_EQ(outside({{0, 10}, {20, 30}}, {{2, 4}, {8, 22}, {25, 26}}),
            (Stretches{{0, 2}, {4, 8}, {22, 25}, {26, 30}}));
  EXPECT_EQ(outside({{0, 10}}, {}), (Stretches{{0, 10}}));
  EXPECT_EQ(outside({{3, 4}, {5, 6}}, {{0, 10}}), Stretches{});
}

TEST(Stretches, Lengths) {
  EXPECT_EQ(length_of({{0, 3}, {5, 8}}), 6);
  EXPECT_EQ(length_within({{0, 3}, {5, 8}, {20, 30}}, {2, 7}), 1 + 2);
}

}  // namespace
}  // namespace rooflm::core
