// Which observed steps of other ranks a record keeps.
#include "lab/rank_steps.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace rooflm::lab {
namespace {

using Numbers = std::vector<std::int64_t>;

TEST(TellingSteps, AreTheMedianTheFastestAndTheSlowest) {
  const std::vector<ObservedStep> steps{{2, 0.5}, {3, 0.1}, {6, 0.31}, {7, 0.3}, {10, 0.9}};
  EXPECT_EQ(telling_steps(steps), (Numbers{3, 6, 10}));
}

TEST(TellingSteps, OfFewEachIsThereOnce) {
  EXPECT_TRUE(telling_steps({}).empty());
  EXPECT_EQ(telling_steps(std::vector<ObservedStep>{{4, 0.2}}), (Numbers{4}));
  EXPECT_EQ(telling_steps(std::vector<ObservedStep>{{4, 0.2}, {5, 0.1}}), (Numbers{4, 5}));
}

}  // namespace
}  // namespace rooflm::lab
