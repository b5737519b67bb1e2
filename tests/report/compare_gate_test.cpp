// What a gate on compared records may rest on: enough samples among several rows, runs that belong together,
// and notes on what it could not see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"
#include "report/tables/compare.h"
#include "tests/record/record_testing.h"
#include "tests/report/compared_runs.h"
#include "tests/report/made_up_run.h"

namespace rooflm::report {
namespace {

/// `runs` runs of each of `configurations` configurations.
std::vector<MadeUpRun> runs_of_each(int configurations, std::size_t runs, double scale, std::uint64_t seed,
                                    std::int64_t steps = 40) {
  std::vector<MadeUpRun> all;
  for (int i = 0; i < configurations; ++i) {
    for (std::size_t k = 0; k < runs; ++k) {
      seed += 1;
      all.push_back(with_seq(made_up_run({.scale = scale, .steps = steps, .seed = seed}), 64 + i));
    }
  }
  return all;
}

MadeUpRun with_threads(MadeUpRun run, std::int64_t threads) {
  run.run.config.set("threads", threads);
  return run;
}

std::vector<ComparedTime> steps_of(const Comparison& comparison) {
  std::vector<ComparedTime> steps;
  for (const ComparedTime& row : comparison.rows) {
    if (row.subject == "step") steps.push_back(row);
  }
  return steps;
}

TEST(CompareGate, FourRunsOfSeveralConfigurationsFindWhatIsTenTimesSlower) {
  // The least p of four runs a side is 2 / 70, and Holm doubles it: their steps are compared.
  const auto comparison = compare_runs(runs_of_each(2, 4, 1, 0), runs_of_each(2, 4, 10, 100));
  for (const ComparedTime& step : steps_of(comparison)) {
    EXPECT_EQ(step.verdict, Verdict::slower) << step.run << " p " << step.p;
    EXPECT_EQ(step.a_runs, 4U);
    EXPECT_EQ(step.a_samples, 80U);
    EXPECT_GE(step.allowance, 0.02) << "as with fewer than four runs";
  }
  EXPECT_EQ(slower_steps(comparison, 0.03).size(), 2U);
  EXPECT_TRUE(has_note(comparison, "4 runs on a side cannot show a change among 2 whole steps"));
  EXPECT_TRUE(has_note(comparison, "with 5 runs on each side"));
  const auto enough = compare_runs(runs_of_each(2, 5, 1, 0), runs_of_each(2, 5, 1.05, 100));
  for (const ComparedTime& step : steps_of(enough)) {
    EXPECT_EQ(step.a_samples, 5U);
    EXPECT_EQ(step.allowance, 0);
    EXPECT_EQ(step.verdict, Verdict::slower);
  }
}

TEST(CompareGate, RunsThatDifferMuchWidenTheAllowanceOfTheirSteps) {
  // Runs within 30 % of each other: 20 % may be chance, though steps differ by 0.4 %.
  std::vector<MadeUpRun> a;
  std::vector<MadeUpRun> b;
  for (const std::int64_t seq : {64, 128}) {
    for (const MadeUpRun& run : started(1, 0.3, 1, 4)) a.push_back(with_seq(run, seq));
    for (const MadeUpRun& run : started(1.2, 0.3, 3, 4)) b.push_back(with_seq(run, seq));
  }
  for (const ComparedTime& step : steps_of(compare_runs(a, b))) {
    EXPECT_EQ(step.a_samples, 80U);
    EXPECT_GT(step.allowance, 0.25);
    EXPECT_EQ(step.verdict, Verdict::unsure);
  }
}

TEST(CompareGate, TooFewStepsAreSaidToShowNothing) {
  // Two plain steps a side: 2 of 6 splits at least.
  const auto comparison = compare_runs({made_up_run({.steps = 4})}, {made_up_run({.scale = 10, .steps = 4})});
  EXPECT_TRUE(slower_steps(comparison, 0.03).empty());
  EXPECT_EQ(row_of(comparison, "step").needed_samples, 4U);
  EXPECT_TRUE(has_note(comparison, "1 of 1 whole steps have too few samples"));
  const auto unseen = unseen_steps(comparison, 0.03);
  ASSERT_EQ(unseen.size(), 1U);
  EXPECT_NE(unseen.front().find("tiny made up: 2 and 2 samples show no change, however large: 4 on each "
                                "side are needed, or 4 runs"),
            std::string::npos)
      << unseen.front();
  EXPECT_TRUE(unseen_steps(compare_runs({made_up_run()}, {made_up_run({.seed = 2})}), 0.03).empty());
}

TEST(CompareGate, SaysWhatTheAllowanceHides) {
  const record::TemporaryFolder folder;
  const record::Reader a = write_record(folder / "a.rooflm", {made_up_run()});
  const record::Reader b = write_record(folder / "b.rooflm", {made_up_run({.scale = 1.2, .seed = 2})});
  const auto unseen = unseen_steps(compare(a, b, {}), 0.03);
  ASSERT_EQ(unseen.size(), 1U);
  EXPECT_EQ(unseen.front(),
            "changes of up to 50% may be differences between runs; 4 runs on each side, taken in turn, show "
            "smaller ones");
  EXPECT_TRUE(unseen_steps(compare(a, b, {.restart = 0.02}), 0.03).empty());
  MadeUpRun busy = made_up_run({.scale = 9, .seed = 2});
  busy.facts.push_back({.key = "others_share", .value = 0.3, .unit = "share", .text = "busy"});
  const auto comparison = compare_runs({made_up_run()}, {busy});
  EXPECT_EQ(unseen_steps(comparison, 0.03),
            std::vector<std::string>{"tiny made up: other programs used the processors: measure again on a "
                                     "quiet machine, or make 4 runs on each side, taken in turn"});
  // Among two configurations four runs are too few.
  const auto two = unseen_steps(compare_runs({made_up_run(), with_seq(made_up_run(), 128)},
                                             {busy, with_seq(made_up_run({.seed = 3}), 128)}),
                                0.001);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_NE(two[0].find("make 5 runs on each side"), std::string::npos) << two[0];
  EXPECT_NE(two[1].find("% may be differences between runs; 5 runs on each side"), std::string::npos)
      << two[1];
}

TEST(CompareGate, OneConfigurationWithSeveralNumbersOfThreadsIsSeveralRows) {
  const auto side = [](double of_eight, std::uint64_t seed) {
    std::vector<MadeUpRun> runs;
    for (const std::int64_t threads : {1, 2, 4, 8}) {
      const double scale = (threads == 8 ? of_eight : 1) * 8 / static_cast<double>(threads);
      runs.push_back(with_threads(made_up_run({.scale = scale, .seed = ++seed}), threads));
    }
    return runs;
  };
  const auto comparison = compare_runs(side(1, 0), side(10, 10));
  const auto steps = steps_of(comparison);
  ASSERT_EQ(steps.size(), 4U);
  const auto slower = slower_steps(comparison, 0.03);
  ASSERT_EQ(slower.size(), 1U);
  EXPECT_EQ(slower.front().run, "tiny made up, threads=8");
  EXPECT_NEAR(slower.front().ratio, 10, 0.1);
  // One side with one number: that number alone.
  const auto eight = compare_runs({with_threads(made_up_run(), 8)}, side(1, 0));
  ASSERT_EQ(steps_of(eight).size(), 1U);
  EXPECT_NEAR(steps_of(eight).front().ratio, 1, 0.01);
  EXPECT_TRUE(has_note(eight, "only in the second record: 'tiny made up, threads=1'"));
  record::expect_input_error([&] { (void)compare_runs({with_threads(made_up_run(), 16)}, side(1, 0)); },
                             {"share no configuration", "threads=16", "threads=1"});
}

TEST(CompareGate, WarmUpAndSearchesSplitRunsButSeedsDoNot) {
  const auto with = [](const char* key, auto value, std::uint64_t seed) {
    MadeUpRun run = made_up_run({.seed = seed});
    run.run.config.set(key, value);
    return run;
  };
  EXPECT_EQ(steps_of(compare_runs({with("warmup", 0, 1), with("warmup", 5, 2)},
                                  {with("warmup", 0, 3), with("warmup", 5, 4)}))
                .size(),
            2U);
  EXPECT_EQ(steps_of(compare_runs({with("search_products", "none", 1), with("search_products", "full", 2)},
                                  {with("search_products", "none", 3), with("search_products", "full", 4)}))
                .size(),
            2U);
  const auto seeds = compare_runs({with("seed", 1, 1), with("seed", 2, 2)}, {with("seed", 3, 3)});
  ASSERT_EQ(steps_of(seeds).size(), 1U);
  EXPECT_EQ(steps_of(seeds).front().a_runs, 2U);
  EXPECT_TRUE(has_note(seeds, "seed: 1, 2 / 3"));
}

TEST(CompareGate, SwappingTheSidesMirrorsTheVerdict) {
  const auto verdict = [](double low, double high, double allowance) {
    return verdict_of(
        {.a_samples = 20, .b_samples = 20, .interval = {low, high, 0.95}, .p = 1e-4, .allowance = allowance},
        {});
  };
  EXPECT_EQ(verdict(99, 101, 1.5), Verdict::slower);
  EXPECT_EQ(verdict(1.0 / 101, 1.0 / 99, 1.5), Verdict::faster);
  EXPECT_EQ(verdict(1.6, 1.7, 0.5), Verdict::slower);
  EXPECT_EQ(verdict(1 / 1.7, 1 / 1.6, 0.5), Verdict::faster);
  EXPECT_EQ(verdict(0.68, 0.7, 0.5), Verdict::unsure);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(verdict(1e-9, 1e-8, kInfinite), Verdict::unsure);
  EXPECT_EQ(verdict(1e8, 1e9, kInfinite), Verdict::unsure);
}

TEST(CompareGate, ATimeThatIsNoneInTheSecondRecordIsLost) {
  const auto with_zero = [](MadeUpRun run) {
    const auto step = std::ranges::find_if(run.samples, [](const record::Sample& sample) {
      return sample.phase == "step" && sample.kind == "plain";
    });
    step->seconds = 0;
    return run;
  };
  const auto other = with_seq(made_up_run(), 128);
  const auto lost =
      compare_runs({made_up_run(), other}, {with_zero(made_up_run({.scale = 5, .seed = 2})), other});
  EXPECT_EQ(lost.lost, std::vector<std::string>{"tiny made up (a time of its step is not positive)"});
  const auto untimed =
      compare_runs({with_zero(made_up_run()), other}, {made_up_run({.scale = 5, .seed = 2}), other});
  EXPECT_TRUE(untimed.lost.empty());
  EXPECT_EQ(unseen_steps(untimed, 0.03),
            std::vector<std::string>{"tiny made up: a time of its step in A is not positive"});
}

TEST(CompareGate, WhatAnUnfinishedRecordLacksIsLost) {
  const record::TemporaryFolder folder;
  const auto short_one = with_seq(made_up_run(), 64);
  const record::Reader a = write_record(folder / "a.rooflm", {short_one, with_seq(made_up_run(), 128)});
  EXPECT_TRUE(compare(a, write_record(folder / "whole.rooflm", {short_one}), {}).lost.empty());
  MadeUpRun stopped = with_seq(made_up_run(), 256);
  const std::vector<std::string> missing = {"T=128 (missing, B is unfinished)"};
  stopped.run.status = "interrupted";
  EXPECT_EQ(compare(a, write_record(folder / "stopped.rooflm", {short_one, stopped}), {}).lost, missing);
  {
    record::Writer killed(folder / "killed.rooflm", "made up");
    short_one.write(killed);
  }
  EXPECT_EQ(compare(a, record::Reader(folder / "killed.rooflm"), {}).lost, missing);
}

TEST(CompareGate, DifferencesOfMachinesAreNotedForEveryRecord) {
  const record::TemporaryFolder folder;
  const auto on = [&](const char* name, const char* processor) {
    record::Writer writer(folder / name, "made up");
    writer.add(record::Environment{.key = "processor", .value = processor});
    made_up_run().write(writer);
    writer.finish();
    return record::Reader(folder / name);
  };
  std::vector<record::Reader> a;
  std::vector<record::Reader> b;
  a.push_back(on("a", "old"));
  b.push_back(on("b1", "old"));
  b.push_back(on("b2", "new"));
  EXPECT_TRUE(has_note(compare(a, b, {}), "processor: old / old, new"));
  b.pop_back();
  EXPECT_FALSE(has_note(compare(a, b, {}), "processor:"));
}

}  // namespace
}  // namespace rooflm::report
