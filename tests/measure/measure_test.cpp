// Sampling, ceilings and the bench runner: what they count, not how fast it was.
#include <gtest/gtest.h>

#include <stdexcept>

#include "backends/null/null_backend.h"
#include "engines/engine.h"
#include "measure/bench_runner.h"
#include "measure/machine.h"
#include "measure/peaks.h"
#include "model/forward.h"

namespace rooflm::measure {
namespace {

TEST(Sampling, DiscardsTheFirstRunAndObeysTheLimits) {
  int runs = 0;
  const auto count = [&] { ++runs; };
  const core::Summary few = measure_rate(1, count, {.seconds = 0, .min_samples = 7, .max_samples = 1000});
  EXPECT_EQ(few.count, 7U);
  EXPECT_EQ(runs, 8);
  runs = 0;
  const core::Summary many = measure_rate(1, count, {.seconds = 60, .min_samples = 1, .max_samples = 9});
  EXPECT_EQ(many.count, 9U);
  EXPECT_EQ(runs, 10);
  EXPECT_GT(many.median, 0);
}

TEST(Sampling, OnASlowMachineTimeEndsItBeforeTheFewestSamples) {
  int runs = 0;
  const core::Summary one =
      measure_rate(1, [&] { ++runs; }, {.seconds = 60, .min_samples = 7, .most_seconds = 0});
  EXPECT_EQ(one.count, 1U);
  EXPECT_EQ(runs, 2);
}

TEST(Sampling, TheUsualFewestSamplesHaveAnIntervalOf95Percent) {
  const core::Summary few = measure_rate(1, [] {}, {.seconds = 0});
  EXPECT_EQ(few.count, 6U);
  EXPECT_GE(few.median_ci.coverage, 0.95);
}

TEST(Peaks, TheFastestProductCounts) {
  const auto wait = [](double seconds) {
    return [seconds] {
      const double end = now_s() + seconds;
      while (now_s() < end) {
      }
    };
  };
  const SamplingOptions options{.seconds = 0, .min_samples = 3};
  const Peak peak = fastest_product(
      {{.m = 10, .n = 10, .k = 10, .run = wait(2e-3)}, {.m = 10, .n = 20, .k = 30, .run = wait(1e-3)}},
      "fp32", 2, options);
  EXPECT_EQ(peak.problem, "10x20x30");
  EXPECT_EQ(peak.unit, "flop/s");
  EXPECT_EQ(peak.threads, 2);
  EXPECT_LE(peak.rate.median, 12000 / 1e-3);
  EXPECT_THROW(fastest_product({}, "fp32", 1, options), std::invalid_argument);
}

class BenchRunner : public testing::Test {
 protected:
  const std::unique_ptr<backends::Backend> backend_ = backends::make_null_backend();
  engines::TensorStore store_{*backend_};
  const compile::StepOptions options_;
  const model::ModelConfig config_ =
      model::with_overrides(model::preset("tiny"), {.layers = 1, .vocab = 100});
  engines::Engine engine_{compile::training_step(model::forward(config_, 1, 8), options_), options_.engine,
                          store_};
};

TEST_F(BenchRunner, CountsWarmUpAndTimedSteps) {
  std::vector<int> steps;
  const BenchResult result = run_bench(engine_, {.warmup = 2, .steps = 3}, [&](int step) {
    steps.push_back(step);
    return true;
  });
  EXPECT_EQ(steps, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(result.samples.size(), 3U);
  EXPECT_EQ(result.step.count, 3U);
  EXPECT_EQ(result.stop_reason, "3 samples");
  for (const engines::StepTimes& times : result.samples) {
    EXPECT_LE(times.forward_s + times.backward_s + times.optimizer_s, times.step_s);
  }
}

TEST_F(BenchRunner, KeepsTheStepsBeforeItWasStopped) {
  const auto stopped_at = [&](int last) {
    return run_bench(engine_, {.warmup = 2, .steps = 9}, [last](int step) { return step < last; });
  };
  EXPECT_EQ(stopped_at(6).samples.size(), 4U);
  EXPECT_EQ(stopped_at(6).step.count, 4U);
  EXPECT_EQ(stopped_at(6).stop_reason, "interrupted");
  EXPECT_TRUE(stopped_at(2).samples.empty());
  EXPECT_TRUE(stopped_at(0).samples.empty());
}

TEST(Machine, SaysSomethingAboutThisOne) {
  EXPECT_GE(query_processor().threads, 1);
  const SystemMemory memory = query_memory();
  if (!memory.total_bytes || !memory.available_bytes) GTEST_SKIP() << "this system does not tell its memory";
  EXPECT_LE(*memory.available_bytes, *memory.total_bytes);
}

TEST(Machine, PeakMemoryFollowsAllocations) {
  if (!resident_bytes() || !reset_peak_resident())
    GTEST_SKIP() << "this system does not tell resident memory";
  const auto before = *peak_resident_bytes();
  constexpr std::int64_t kBytes = 64 << 20;
  { std::vector<char> block(kBytes, 1); }
  EXPECT_GE(*peak_resident_bytes() - before, kBytes / 2);
}

}  // namespace
}  // namespace rooflm::measure
