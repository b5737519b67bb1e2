// Which ceilings the measured times of a run beat.
#include "lab/ceilings/roofs.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace rooflm::lab {
namespace {

measure::TimedStep step(measure::StepKind kind, double seconds) {
  return {.kind = kind,
          .times = {.forward_s = 0.3 * seconds,
                    .backward_s = 0.5 * seconds,
                    .optimizer_s = 0.2 * seconds,
                    .step_s = seconds}};
}

TEST(MeasuredTimes, MediansOfOpsAndOfPlainSteps) {
  const std::vector<record::Event> events = {
      {.step = 3, .op = 0, .device_ns = 1000}, {.step = 3, .op = 7, .device_ns = 500},
      {.step = 5, .op = 0, .device_ns = 3000}, {.step = 5, .op = 7, .device_ns = 700},
      {.step = 7, .op = 0, .device_ns = 2000}, {.step = 7, .op = 7, .device_ns = 600}};
  measure::InterleaveResult result;
  for (const double seconds : {1.0, 2.0, 9.0}) {
    result.steps.push_back(step(measure::StepKind::plain, seconds));
    result.steps.push_back(step(measure::StepKind::observed, 100));
    result.steps.push_back(step(measure::StepKind::warmup, 200));
  }
  const MeasuredTimes times = measured_times(events, result);
  EXPECT_DOUBLE_EQ(times.at("op:0"), 2e-6);
  EXPECT_DOUBLE_EQ(times.at("op:7"), 6e-7);
  EXPECT_DOUBLE_EQ(times.at("step"), 2.0);
  EXPECT_DOUBLE_EQ(times.at("phase:forward"), 0.6);
  EXPECT_DOUBLE_EQ(times.at("phase:optimizer"), 0.4);
}

TEST(BeatenBounds, NamesTheRoofsAboveTheTimes) {
  const auto roof = [](const std::string& subject, double seconds, const std::string& bound) {
    return record::Prediction{
        .subject = subject, .quantity = "roof_s", .value = seconds, .unit = "s", .bound = bound};
  };
  const std::vector<record::Prediction> roofs = {roof("op:0", 1.00, "matmul fp32"),
                                                 roof("op:1", 2.00, "DRAM"), roof("op:2", 3e-6, "L2"),
                                                 roof("op:3", 5.00, "L3"), roof("op:4", 0, "")};
  // Op 0 is at 96.5 % of its roof, op 1 at half of it, op 2 above it by less than clocks tell, op 3 was not
  // timed.
  const MeasuredTimes times = {{"op:0", 0.965}, {"op:1", 1.0}, {"op:2", 2.5e-6}, {"op:4", 1e-9}};
  EXPECT_EQ(beaten_bounds(roofs, times), std::set<std::string>{"DRAM"});
}

}  // namespace
}  // namespace rooflm::lab
