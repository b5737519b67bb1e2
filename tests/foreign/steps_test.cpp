// Steps that are found in what repeats itself, and steps that are warm-up.
#include <gtest/gtest.h>

#include <string>
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
  const auto found = find_repeats(items, {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->length, 8U);
  EXPECT_EQ(found->count, 10U);
  EXPECT_EQ(found->begin, 4U);
}

TEST(Repeats, LayersWithinAStepAreNoSteps) {
  std::vector<std::int64_t> step = {7};
  for (int layer = 0; layer < 6; ++layer) step.insert(step.end(), {1, 2, 3});
  step.push_back(8);
  const auto found = find_repeats(repeated({}, step, 9), {});
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
  EXPECT_FALSE(find_repeats(items, {}));
  EXPECT_FALSE(find_repeats({}, {}));
  EXPECT_FALSE(find_repeats(std::vector<std::int64_t>(100, 5), {})) << "one kernel over and over";
}

TEST(Repeats, KernelsOfAGraphAreInTheOrderOfItsNodes) {
  ForeignRun run;
  const std::int64_t device = run.lane("device", {.kind = "device", .device = "cuda:0"});
  const std::int64_t host = run.lane("host", {.kind = "host", .thread = 1});
  for (std::int64_t step = 0; step < 8; ++step) {
    const std::int64_t begin = 1'000'000 + 100'000 * step;
    run.add({.name = run.name("api", "cudaGraphLaunch"),
             .lane = host,
             .start_ns = begin,
             .end_ns = begin + 1000,
             .correlation = 10 + step});
    // A stream beside the other one: its kernel starts first in every second step, and in none at the same
    // place.
    const std::int64_t beside = step % 2 == 0 ? 12'000 : 1'500 + step;
    int node = 0;
    for (const std::int64_t start : {std::int64_t{2'000}, beside, std::int64_t{20'000}}) {
      run.add({.name = run.name("kernel", "kernel " + std::to_string(node)),
               .lane = device,
               .start_ns = begin + start,
               .end_ns = begin + start + 5'000,
               .correlation = 10 + step,
               .extra = R"({"grid":[1,1,1],"node":)" + std::to_string(7 + node) + "}"});
      ++node;
    }
  }
  const auto samples = find_steps(run);
  ASSERT_EQ(samples.size(), 8U);
  for (std::size_t i = 1; i < samples.size(); ++i) EXPECT_NEAR(samples[i].seconds, 100e-6, 1e-6);
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
