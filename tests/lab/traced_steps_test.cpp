// Tracing that fails: one line, and what came of the steps before. No GPU: the tracer is made up, the device
// runs nothing.
#include "lab/traced_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "lab/devices.h"
#include "lab/run_record.h"
#include "model/forward.h"
#include "record/reader.h"
#include "tests/record/record_testing.h"
#include "trace/op_spans.h"

namespace rooflm::lab {
namespace {

/// Sees one kernel in each step, and fails in step `last` (from 0).
class FailingTracer final : public trace::ActivityTracer {
 public:
  explicit FailingTracer(int last) : last_(last) {}
  [[nodiscard]] std::string version() const override { return "made up"; }
  void start(bool /*with_memory*/) override {
    if (steps_++ == last_) throw core::Unavailable("CUPTI: tracing: it broke");
    started_ns_ = trace::steady_ns();
  }
  void stop() noexcept override {
    trace_.names = {"kernel"};
    const std::int64_t middle_ns = (started_ns_ + trace::steady_ns()) / 2;  // the step takes most of it
    trace_.activities.push_back({.start_ns = middle_ns, .end_ns = middle_ns + 1});
  }
  [[nodiscard]] trace::DeviceTrace take() override { return std::exchange(trace_, {}); }
  [[nodiscard]] std::optional<std::uint64_t> node_id(std::uint64_t) const override { return std::nullopt; }

 private:
  int last_, steps_ = 0;
  std::int64_t started_ns_ = 0;
  trace::DeviceTrace trace_;
};

/// Sees what the inputs of a step are when tracing it begins and ends.
class InputsTracer final : public trace::ActivityTracer {
 public:
  explicit InputsTracer(engines::Engine& engine, std::vector<bool>& seen) : engine_(&engine), seen_(&seen) {}
  [[nodiscard]] std::string version() const override { return "made up"; }
  void start(bool /*with_memory*/) override { before_ = hyper(); }
  void stop() noexcept override { seen_->push_back(hyper() != before_); }
  [[nodiscard]] trace::DeviceTrace take() override { return {}; }
  [[nodiscard]] std::optional<std::uint64_t> node_id(std::uint64_t) const override { return std::nullopt; }

 private:
  [[nodiscard]] std::vector<float> hyper() const { return engine_->io().read<float>("hyper"); }
  engines::Engine* engine_;
  std::vector<bool>* seen_;  ///< by traced step: whether its inputs were written while it was traced
  std::vector<float> before_;
};

struct Traced {
  std::string sentence;         ///< the fact "tracing"
  std::string cost;             ///< the fact "tracing_cost"
  std::set<std::string> kinds;  ///< of samples
  std::size_t activities = 0;
  std::int64_t next_step = 0;
};

using OpenFor = std::function<std::unique_ptr<trace::ActivityTracer>(engines::Engine&)>;

Traced traced_with(const OpenFor& open, const char* device = "null", double plain_step_s = 0) {
  record::Config typed;
  typed.set("model", "tiny");
  typed.set("device", device);
  for (const auto& [key, value] :
       {std::pair{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"vocab", 50}, {"batch", 1}, {"seq", 8}}) {
    typed.set(key, value);
  }
  const Point point = make_points(std::array{typed}).at(0);
  const auto backend = make_backend(point);
  engines::TensorStore store(*backend);
  engines::Engine engine(
      compile::training_step(model::forward(point.config, point.batch, point.seq), point.step),
      point.step.engine, store);
  StepInputs inputs(engine, point, 0);
  const record::TemporaryFolder folder;
  record::Writer writer(folder / "a.rooflm", "made up");
  const std::int64_t run = writer.begin_run(run_row(point));
  Traced traced;
  traced.next_step = trace_steps(engine, inputs, point, run, 10, writer, plain_step_s, nullptr, [&] {
                       return open(engine);
                     }).next_step;
  writer.end_run(run, "success");
  writer.finish();
  const record::Reader reader(folder / "a.rooflm");
  if (const auto fact = reader.fact(run, "tracing")) traced.sentence = fact->text;
  if (const auto fact = reader.fact(run, "tracing_cost")) traced.cost = fact->text;
  for (const record::Sample& sample : reader.rows<record::Sample>(run)) traced.kinds.insert(sample.kind);
  traced.activities = reader.rows<record::Activity>(run).size();
  return traced;
}

TEST(TracedSteps, WhatCannotBeOpenedIsOneLineAndNothingElse) {
  const Traced traced = traced_with([](engines::Engine&) -> std::unique_ptr<trace::ActivityTracer> {
    throw core::Unavailable("CUPTI: attaching: another profiler is attached");
  });
  EXPECT_EQ(traced.sentence, "not traced: CUPTI: attaching: another profiler is attached");
  EXPECT_TRUE(traced.kinds.empty());
  EXPECT_EQ(traced.next_step, 10);
}

TEST(TracedSteps, StepsBeforeAFailureAreKept) {
  // The first step warms up, memory is traced in the second, so that of the third is left.
  const Traced traced = traced_with([](engines::Engine&) { return std::make_unique<FailingTracer>(3); });
  EXPECT_EQ(traced.sentence, "tracing ended early: CUPTI: tracing: it broke");
  EXPECT_EQ(traced.kinds, (std::set<std::string>{"allocations", "traced"}));
  EXPECT_EQ(traced.activities, 4U);  // two ranges, two kernels
  EXPECT_EQ(traced.next_step, 12);
}

TEST(TracedSteps, AFailureInTheFirstStepLeavesNothing) {
  EXPECT_EQ(traced_with([](engines::Engine&) { return std::make_unique<FailingTracer>(0); }).sentence,
            "not traced: CUPTI: tracing: it broke");
}

TEST(TracedSteps, TheInputsOfTwoStepsAreWrittenWhileTheyAreTraced) {
  std::vector<bool> seen;
  const Traced traced = traced_with(
      [&](engines::Engine& engine) { return std::make_unique<InputsTracer>(engine, seen); }, "cpu");
  EXPECT_TRUE(traced.kinds.contains("inputs"));
  EXPECT_EQ(std::ranges::count(seen, true), 2);
  EXPECT_GT(seen.size(), 8U);
}

TEST(TracedSteps, AProfilerThatMakesStepsLongerIsTold) {
  const auto cost_beside = [](double plain_step_s) {
    std::vector<bool> seen;
    const auto open = [&](engines::Engine& engine) { return std::make_unique<InputsTracer>(engine, seen); };
    return traced_with(open, "cpu", plain_step_s).cost;
  };
  constexpr double kNoStepIsSoShort = 1e-9, kNorSoLong = 1e3;
  EXPECT_NE(cost_beside(kNoStepIsSoShort).find("traced times are not those of the step"), std::string::npos);
  EXPECT_EQ(cost_beside(kNorSoLong).find("traced times are not"), std::string::npos);
  EXPECT_EQ(cost_beside(0).find("traced times are not"), std::string::npos);
}

}  // namespace
}  // namespace rooflm::lab
