// Steps in which each op is submitted alone: what the record has of them, and that others are left as they
// were.
#include "lab/alone_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lab/devices.h"
#include "lab/point.h"
#include "lab/run_record.h"
#include "record/reader.h"
#include "tests/record/record_testing.h"

namespace rooflm::lab {
namespace {

TEST(TimeAlone, EveryOpHasAWallTimeAndTheStepsAreOfTheirOwnKind) {
  record::Config typed;
  typed.set("model", "tiny");
  typed.set("device", "cpu");
  for (const auto& [key, value] :
       {std::pair{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"vocab", 50}, {"batch", 1}, {"seq", 8}}) {
    typed.set(key, value);
  }
  const Point point = make_points(std::array{typed}).at(0);
  const auto backend = make_backend(point);
  engines::TensorStore store(*backend);
  engines::Engine engine(program_of(point), point.step.engine, store);
  StepInputs inputs(engine, point, 0);
  engine.run();
  const record::TemporaryFolder folder;
  record::Writer writer(folder / "a.rooflm", "made up");
  const std::int64_t run = writer.begin_run(run_row(point));
  EXPECT_EQ(time_alone(engine, *backend, inputs, 1e-9, run, 10, writer), 15);
  writer.end_run(run, "success");
  writer.finish();

  const record::Reader reader(folder / "a.rooflm");
  const auto samples = reader.rows<record::Sample>(run);
  ASSERT_EQ(samples.size(), 5U);
  EXPECT_EQ(samples.front().step, 10);
  EXPECT_TRUE(std::ranges::all_of(samples, [](const record::Sample& sample) {
    return sample.kind == record::kAloneSource && sample.phase == "step" && sample.seconds > 0;
  }));
  const auto counters = reader.rows<record::Counter>(run);
  const auto ops = std::ranges::count_if(
      engine.program().ops, [](const program::Op& op) { return op.phase != program::Phase::setup; });
  EXPECT_EQ(static_cast<std::int64_t>(counters.size()), ops);
  EXPECT_TRUE(std::ranges::all_of(counters, [](const record::Counter& counter) {
    return counter.name == record::kAloneWall && counter.value > 0 && counter.op.has_value();
  }));
  const auto cost = reader.fact(run, "alone_cost");
  ASSERT_TRUE(cost.has_value());
  EXPECT_GT(cost->value.value_or(0), 1) << "against a nanosecond";
  EXPECT_TRUE(reader.rows<record::Event>(run).empty());
}

}  // namespace
}  // namespace rooflm::lab
