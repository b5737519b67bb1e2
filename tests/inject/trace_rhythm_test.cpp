// Which steps are traced, and what that adds to a program.
#include "inject/trace_rhythm.h"

#include <gtest/gtest.h>

#include <vector>

namespace rooflm::inject {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// What the steps of a loop take, in ns.
struct Loop {
  std::uint64_t timed, traced;
  std::uint64_t arriving, leaving;  ///< of the profiler, within the step that follows
  std::uint64_t first = 0;          ///< the first step's, which compiles
};

struct Seen {
  std::vector<std::uint64_t> traced;  ///< numbers of steps
  double added = 0;  ///< share by which the steps after the first 76 took longer than without a profiler
};

Seen run(TraceRhythm rhythm, const Loop& loop, std::uint64_t steps) {
  Seen seen;
  std::uint64_t now = 1;
  std::uint64_t late = 0;
  bool was_traced = true;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const bool is_traced = step == 0 || was_traced;
    if (is_traced) seen.traced.push_back(step);
    if (step == 76) late = now;
    now += (is_traced ? loop.traced : loop.timed) + (step == 0 ? loop.first : 0);
    const bool next = rhythm.end_step(now);
    if (next != is_traced) now += next ? loop.arriving : loop.leaving;
    was_traced = next;
  }
  seen.added = static_cast<double>(now - late) / static_cast<double>((steps - 76) * loop.timed) - 1;
  return seen;
}

TEST(TraceRhythm, TracesAllOrTwoOfEach) {
  EXPECT_EQ(run(TraceRhythm(1), {kMs, kMs, 0, 0}, 40).traced.size(), 40);
  const std::vector<std::uint64_t> expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 100, 101, 200, 201};
  EXPECT_EQ(run(TraceRhythm(100), {kMs, 9 * kMs, 0, 0}, 250).traced, expected);
}

TEST(TraceRhythm, ByCostIsAsRareAsItNeedsToBe) {
  // A replayed graph of small kernels, whose steps are shorter than the profiler's coming; an eager step; and
  // a first step that compiles for a minute, which is no measure of anything.
  for (const Loop& loop :
       {Loop{6 * kMs, 8 * kMs, 9 * kMs, 10 * kMs}, Loop{40 * kMs, 62 * kMs, 12 * kMs, 15 * kMs},
        Loop{40 * kMs, 62 * kMs, 12 * kMs, 15 * kMs, 60'000 * kMs}}) {
    const Seen seen = run(TraceRhythm(TraceRhythm::kByCost), loop, 20'000);
    ASSERT_GE(seen.traced.size(), 20);
    EXPECT_EQ(seen.traced[11], 11);
    EXPECT_EQ(seen.traced[12], 64);  // the first pair, on credit
    EXPECT_EQ(seen.traced[13], 65);
    for (std::size_t at = 12; at < seen.traced.size(); at += 2) EXPECT_EQ(seen.traced[at] % 16, 0);
    EXPECT_LE(seen.added, 0.0021);
    EXPECT_GE(seen.added, 0.001);
  }
}

TEST(TraceRhythm, ByCostIsEach64thWhereItCostsNothing) {
  const Seen seen = run(TraceRhythm(TraceRhythm::kByCost), {200 * kMs, 200 * kMs, 0, 0}, 640);
  EXPECT_EQ(seen.traced.size(), 12 + 9 * 2);
  EXPECT_EQ(seen.traced.back(), 9 * 64 + 1);
}

TEST(TraceRhythm, APairThatACheckpointFellIntoIsNotTheLast) {
  TraceRhythm rhythm(TraceRhythm::kByCost);
  constexpr std::uint64_t kStep = 100 * kMs;
  constexpr std::uint64_t kCheckpoint = 60'000 * kMs;  // within the first pair
  std::uint64_t now = 1;
  std::vector<std::uint64_t> traced;
  for (std::uint64_t step = 0; step < 7'000; ++step) {
    now += kStep + (step == 64 ? kCheckpoint : 0);
    if (rhythm.end_step(now) && step > 64) traced.push_back(step + 1);
  }
  ASSERT_GE(traced.size(), 2);
  EXPECT_LE(traced[1], 66 + 600'000 * kMs / kStep + 16) << "ten minutes later";
}

TEST(TraceRhythm, ClocksThatStandStillDoNoHarm) {
  EXPECT_EQ(run(TraceRhythm(TraceRhythm::kByCost), {0, 0, 0, 0}, 65).traced.size(), 13);
}

}  // namespace
}  // namespace rooflm::inject
