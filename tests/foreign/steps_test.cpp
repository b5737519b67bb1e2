// Steps that are found in what repeats itself, and steps that are warm-up.
#include <gtest/gtest.h>

#include <vector>

#include "foreign/foreign_run.h"
#include "foreign/repeats.h"

namespace rooflm::foreign {
namespace {

std::vector<std::int64_t> repeated(std::vector<std::int64_t> before, const std::vector<std::int64_t>& period,
                                   std::size_t times) {
  for (std::size_t i = 0; i < times; ++i) before.insert(before.end(), period.begin(), period.end());
  return before;
}

TEST(Repeats, ThePeriodIsTheShortestThatCoversMost) {
  const auto items = repeated({90, 91, 92, 93}, {1, 2, 2, 2, 3, 1, 2, 4}, 10);
  const auto found = find_repeats(items);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->length, 8U);
  EXPECT_EQ(found->count, 10U);
  EXPECT_EQ(found->begin, 4U);
}

TEST(Repeats, LayersWithinAStepAreNoSteps) {
  std::vector<std::int64_t> step = {7};
  for (int layer = 0; layer < 6; ++layer) step.insert(step.end(), {1, 2, 3});
  step.push_back(8);
  const auto found = find_repeats(repeated({}, step, 9));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->length, step.size());
}

TEST(Repeats, WhatDoesNotRepeatHasNone) {
  std::vector<std::int64_t> items(500);
  std::uint64_t state = 1;
  for (std::int64_t& item : items) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    item = static_cast<std::int64_t>(state >> 60U);
  }
  EXPECT_FALSE(find_repeats(items));
  EXPECT_FALSE(find_repeats({}));
  EXPECT_FALSE(find_repeats(std::vector<std::int64_t>(100, 5))) << "one kernel over and over";
}

std::vector<record::Sample> samples_of(const std::vector<double>& seconds) {
  std::vector<record::Sample> samples;
  for (const double one : seconds) samples.push_back({.phase = "step", .seconds = one, .kind = "traced"});
  return samples;
}

TEST(Warmup, TheFirstStepsAreDroppedWhereTheyTakeLonger) {
  auto samples = samples_of({9, 3, 1, 1.1, 1, 5, 1, 1});
  mark_warmup(samples);
  EXPECT_EQ(samples[0].kind, "warmup");
  EXPECT_EQ(samples[1].kind, "warmup");
  EXPECT_EQ(samples[2].kind, "traced");
  EXPECT_EQ(samples[5].kind, "traced") << "a slow one later is no warm-up";
}

TEST(Warmup, OfFewStepsAllCount) {
  auto samples = samples_of({9, 1, 1});
  mark_warmup(samples);
  EXPECT_EQ(samples[0].kind, "traced");
}

}  // namespace
}  // namespace rooflm::foreign
