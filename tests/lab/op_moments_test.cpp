// When ops ran, from the activities of traced steps.
#include "lab/op_moments.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "program/ops.h"

namespace rooflm::lab {
namespace {

program::Program program_of(const std::vector<const program::OpDef*>& defs) {
  program::Program program;
  for (const program::OpDef* def : defs) program.ops.emplace_back().def = def;
  return program;
}

TEST(OpMoments, AnOpRunsFromItsFirstKernelToItsLast) {
  const auto program = program_of({&program::ops::kMatmul, &program::ops::kAllReduce, &program::ops::kSend});
  trace::TraceRows rows;
  rows.names = {
      {0, "kernel", "gemm"}, {1, "kernel", "nccl"}, {2, "copy", "device to device"}, {3, "api", "call"}};
  const auto add = [&](std::int64_t step, std::int64_t op, std::int64_t name, std::int64_t from,
                       std::int64_t to) {
    record::Activity activity{.name = name, .start_ns = from, .end_ns = to};
    activity.step = step;
    activity.op = op;
    rows.activities.push_back(activity);
  };
  add(7, 1, 1, 30, 90);
  add(7, 0, 0, 20, 25);
  add(7, 0, 0, 10, 15);
  add(7, 0, 3, 1, 2);    // of the host
  add(7, 2, 2, 40, 42);  // of what is sent the copy
  add(7, 2, 1, 42, 99);
  add(8, 0, 0, 60, 70);  // of a step that nobody asked for
  const auto moments = moments_of(rows, 1000, program, {{.step = 7, .seconds = 1e-7}});
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> found;
  for (const OpMoment& each : moments) found.emplace_back(each.step, each.op, each.start_ns, each.end_ns);
  EXPECT_EQ(found, (decltype(found){{7, 0, 1010, 1025}, {7, 1, 1030, 1090}, {7, 2, 1040, 1042}}));
}

TEST(OpMoments, TheMeanStepOfNoneIsNothing) {
  EXPECT_EQ(ObservedSteps{}.mean_s(), 0);
  EXPECT_DOUBLE_EQ((ObservedSteps{.steps = {{1, 0.25}, {2, 0.75}}}).mean_s(), 0.5);
}

}  // namespace
}  // namespace rooflm::lab
