// Counting a step: each op a range in each pass, sets that fail are left out, and CUPTI's schedule of our
// counters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/error.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "model/parameters.h"
#include "trace/counted_step.h"
#include "trace/counter_metrics.h"
#include "trace/device_counters.h"

namespace rooflm {
namespace {

/// Counts ranges instead of hardware, in as many passes as the set has metrics.
class MadeUpCounters final : public trace::DeviceCounters {
 public:
  [[nodiscard]] std::string chip() const override { return "GX100"; }
  void begin(const trace::CounterSet& set, std::size_t max_ranges) override {
    if (set.name == "denied") throw core::Unavailable("CUPTI: no");
    set_ = &set;
    max_ranges_ = max_ranges;
    pass_ = 0;
    ranges_.clear();
  }
  [[nodiscard]] int passes() const override { return static_cast<int>(set_->metrics.size()); }
  void begin_pass() override { in_pass_.clear(); }
  void begin_range(std::size_t id) override {
    EXPECT_FALSE(is_open_) << "ranges are not nested";
    is_open_ = true;
    in_pass_.push_back(id);
    if (set_->name == "fails in the step" && id == 3) throw core::Unavailable("CUPTI: range");
  }
  void end_range() override {
    EXPECT_TRUE(is_open_);
    is_open_ = false;
  }
  bool end_pass() override {
    EXPECT_LE(in_pass_.size(), max_ranges_);
    if (pass_ > 0) {
      EXPECT_EQ(in_pass_, ranges_) << "the same ranges in each pass";
    }
    ranges_ = in_pass_;
    return ++pass_ == passes();
  }
  [[nodiscard]] std::vector<trace::CountedRange> take() override {
    std::vector<trace::CountedRange> counted;
    for (const std::size_t id : ranges_) {
      trace::CountedRange& range = counted.emplace_back();
      range.id = id;
      for (const trace::CounterMetric& metric : set_->metrics) {
        range.values.push_back(
            {.name = metric.name, .value = metric.weight * static_cast<double>(id), .unit = metric.unit});
      }
    }
    cancel();
    return counted;
  }
  void cancel() noexcept override {
    ++cancelled_;
    is_open_ = false;
  }
  [[nodiscard]] int cancelled() const { return cancelled_; }

 private:
  const trace::CounterSet* set_ = nullptr;
  std::size_t max_ranges_ = 0;
  std::vector<std::size_t> in_pass_, ranges_;
  int pass_ = 0, cancelled_ = 0;
  bool is_open_ = false;
};

/// A small model on the processor, ready to step.
class CountedStepTest : public testing::Test {
 protected:
  CountedStepTest()
      : backend_(backends::make_cpu_backend(backends::CpuKernels::fast, 1)),
        store_(*backend_),
        engine_(program(), compile::EngineKind::fused, store_) {
    for (const auto& parameter : model::parameters(config())) {
      store_.write<float>(parameter.name, model::initial_values(parameter, config(), 0));
    }
    engine_.io().write<std::int32_t>("tokens", std::vector<std::int32_t>(2 * 16, 1));
    engine_.io().write<std::int32_t>("targets", std::vector<std::int32_t>(2 * 16, 2));
    engine_.io().write<float>("hyper", std::vector<float>{0, 1, 1, 0});
    engine_.setup();
  }
  static model::ModelConfig config() {
    return model::with_overrides(
        model::preset("gpt2"), {.layers = 1, .heads = 2, .d_model = 32, .d_ff = 64, .vocab = 61, .seq = 16});
  }
  static program::Program program() {
    return compile::training_step(model::forward(config(), 2, 16), {.engine = compile::EngineKind::fused});
  }
  [[nodiscard]] std::size_t ops() const {
    std::size_t count = 0;
    for (const auto& op : engine_.program().ops) count += op.phase == program::Phase::setup ? 0 : 1;
    return count;
  }

  std::unique_ptr<backends::Backend> backend_;
  engines::TensorStore store_;
  engines::Engine engine_;
  MadeUpCounters counters_;
};

const trace::CounterSet kTwoPasses = {.name = "two", .metrics = {{"a", "x", "B", 2}, {"b", "y", "flop"}}};
const trace::CounterSet kOnePass = {.name = "one", .metrics = {{"c", "z", "B"}}};

TEST_F(CountedStepTest, EachOpIsARangeOfEachPass) {
  int repeated = 0;
  const std::vector<trace::CounterSet> sets = {kTwoPasses, kOnePass};
  const auto step = trace::count_step(engine_, counters_, sets, [&] { return ++repeated > 0; });
  EXPECT_EQ(repeated, 3) << "passes";
  EXPECT_EQ(step.times.size(), 3U);
  EXPECT_EQ(step.sets, (std::vector<std::string>{"two: 2 passes", "one: 1 pass"}));
  EXPECT_TRUE(step.missing.empty());
  ASSERT_EQ(step.ops.size(), ops());
  for (const trace::CountedRange& op : step.ops) {
    ASSERT_EQ(op.values.size(), 3U) << "of both sets";
    EXPECT_EQ(op.values[0].value, 2 * static_cast<double>(op.id));
    EXPECT_EQ(op.values[2].name, "z");
  }
}

TEST_F(CountedStepTest, ASetThatFailsTakesNoOtherAlong) {
  const std::vector<trace::CounterSet> sets = {{.name = "denied", .metrics = {{"a", "x", "B"}}},
                                               {.name = "fails in the step", .metrics = {{"a", "x", "B"}}},
                                               kOnePass};
  const auto step = trace::count_step(engine_, counters_, sets, [] { return true; });
  EXPECT_EQ(step.missing, (std::vector<std::string>{"denied: CUPTI: no", "fails in the step: CUPTI: range"}));
  EXPECT_EQ(step.sets, (std::vector<std::string>{"one: 1 pass"}));
  ASSERT_EQ(step.ops.size(), ops());
  EXPECT_EQ(step.ops.front().values.size(), 1U);
}

TEST_F(CountedStepTest, ASignalEndsItBetweenPasses) {
  int repeated = 0;
  const std::vector<trace::CounterSet> sets = {kOnePass, kTwoPasses};
  const auto step = trace::count_step(engine_, counters_, sets, [&] { return ++repeated < 3; });
  EXPECT_EQ(step.sets, (std::vector<std::string>{"one: 1 pass"}));
  EXPECT_EQ(step.missing, (std::vector<std::string>{"two: interrupted"}));
  EXPECT_EQ(step.times.size(), 2U);
}

TEST_F(CountedStepTest, WorkOutsideAStepIsOneRange) {
  int runs = 0;
  const auto values = trace::count_work(counters_, kTwoPasses, [&] { ++runs; });
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(values.size(), 2U);
}

/// CUPTI schedules counters without a GPU.
int passes_on_gh100(const trace::CounterSet& set) {
  try {
    return trace::counter_passes("GH100", set);
  } catch (const core::Unavailable&) {
    return 0;
  }
}

TEST(CounterMetrics, FewPassesOnHopper) {
  const auto sets = trace::counter_sets();
  ASSERT_EQ(sets.size(), 4U);
  if (passes_on_gh100(sets.front()) == 0) GTEST_SKIP() << "SKIPPED: no CUPTI here";
  EXPECT_EQ(sets[0].name, "memory");
  EXPECT_EQ(passes_on_gh100(sets[0]), 2);
  EXPECT_LE(passes_on_gh100(sets[1]), 3) << sets[1].name;
  EXPECT_EQ(passes_on_gh100(sets[2]), 1) << sets[2].name;
  EXPECT_LE(passes_on_gh100(sets[3]), 3) << sets[3].name;
  EXPECT_THROW((void)trace::counter_passes("GX999", sets[0]), core::UsageError);
  EXPECT_THROW(
      (void)trace::counter_passes("GH100", {.name = "made up", .metrics = {{"no__such.sum", "x", ""}}}),
      core::Unavailable);
}

TEST(CounterMetrics, UnknownMetricsAreLeftOut) {
  trace::CounterSet set = trace::counter_sets().front();
  if (passes_on_gh100(set) == 0) GTEST_SKIP() << "SKIPPED: no CUPTI here";
  set.metrics.push_back({"sm__no_such_thing.sum", "nothing", ""});
  EXPECT_EQ(passes_on_gh100(set), 2);
}

}  // namespace
}  // namespace rooflm
