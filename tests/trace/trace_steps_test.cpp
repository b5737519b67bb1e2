// Activities find their steps and ops: in replayed graphs by node, in steps that are submitted op by op by
// call.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trace/launch_text.h"
#include "trace/step_trace.h"

namespace rooflm::trace {
namespace {

constexpr std::int64_t kEpoch = 1'000'000;
constexpr std::uint64_t kGraph = std::uint64_t{1} << 32U;  ///< as it was recorded
constexpr std::uint64_t kCopy = std::uint64_t{7} << 32U;   ///< as it runs

/// Fills a trace, activity by activity.
struct TraceMaker {
  DeviceTrace trace;
  std::size_t name(const std::string& text) {
    const auto found = std::ranges::find(trace.names, text);
    if (found != trace.names.end()) return static_cast<std::size_t>(found - trace.names.begin());
    trace.names.push_back(text);
    return trace.names.size() - 1;
  }
  DeviceActivity& kernel(const std::string& text, std::int64_t start, std::int64_t end, std::int64_t stream,
                         std::int64_t correlation) {
    trace.activities.push_back({.kind = ActivityKind::kernel,
                                .name = name(text),
                                .start_ns = start,
                                .end_ns = end,
                                .stream = stream,
                                .correlation = correlation,
                                .launch = trace.launches.size()});
    trace.launches.push_back({.grid = {264, 1, 1}, .block = {256, 1, 1}, .registers = 32});
    return trace.activities.back();
  }
  void call(const std::string& text, std::int64_t start, std::int64_t end, std::int64_t correlation) {
    trace.activities.push_back({.kind = ActivityKind::api,
                                .name = name(text),
                                .start_ns = start,
                                .end_ns = end,
                                .thread = 42,
                                .correlation = correlation});
  }
};

const record::Activity& activity_named(const TraceRows& rows, const std::string& text) {
  const auto name = std::ranges::find(rows.names, text, &record::ActivityName::text);
  if (name == rows.names.end()) throw std::runtime_error("no name " + text);
  return *std::ranges::find(rows.activities, name->name, &record::Activity::name);
}

TEST(StepTrace, NodesOfAReplayTellTheOp) {
  NodeOps nodes;
  nodes.add(kGraph + 0, 10);
  nodes.add(kGraph + 1, 11);
  nodes.add(kGraph + 2, std::nullopt);  // the backend's own
  TraceMaker maker;
  maker.call("cudaGraphLaunch", kEpoch + 100, kEpoch + 200, 5);
  maker.kernel("gemm", kEpoch + 300, kEpoch + 400, 13, 5).graph_node = kCopy + 0;
  maker.kernel("update", kEpoch + 350, kEpoch + 500, 16, 5).graph_node = kCopy + 1;
  maker.kernel("mark", kEpoch + 350, kEpoch + 360, 17, 5).graph_node = kCopy + 2;
  maker.kernel("stranger", kEpoch + 500, kEpoch + 600, 13, 5).graph_node = kCopy + 99;
  const std::vector<TracedStep> steps = {
      {.step = 3, .begin_ns = kEpoch + 50, .end_ns = kEpoch + 700, .nodes = &nodes}};
  const TraceRows rows = rows_of(maker.trace, steps, kEpoch, "cuda");
  EXPECT_EQ(activity_named(rows, "gemm").op, 10);
  EXPECT_EQ(activity_named(rows, "update").op, 11);
  EXPECT_FALSE(activity_named(rows, "mark").op.has_value());
  EXPECT_FALSE(activity_named(rows, "stranger").op.has_value());
  EXPECT_EQ(rows.kernels, 4);
  EXPECT_EQ(rows.without_op, 1);
  EXPECT_EQ(rows.of_backend, 1);
  // Real lanes: kernels of one replay stay on their streams and may overlap; then the thread.
  ASSERT_EQ(rows.lanes.size(), 4U);
  EXPECT_EQ(rows.lanes[0].name, "stream 13");
  EXPECT_EQ(rows.lanes[0].device, "cuda:0");
  EXPECT_EQ(rows.lanes[3].kind, "host");
  EXPECT_EQ(rows.lanes[3].thread, 42);
  EXPECT_NE(activity_named(rows, "gemm").lane, activity_named(rows, "update").lane);
  // The clock of the record, and the step as a range.
  const record::Activity& range = activity_named(rows, "step");
  EXPECT_EQ(range.start_ns, 50);
  EXPECT_EQ(range.end_ns, 700);
  EXPECT_EQ(range.step, 3);
  EXPECT_EQ(activity_named(rows, "gemm").start_ns, 300);
  for (std::size_t i = 1; i < rows.activities.size(); ++i) {
    EXPECT_LE(rows.activities[i - 1].start_ns, rows.activities[i].start_ns);
  }
}

TEST(StepTrace, NodesOfSeveralGraphsAreToldApartByTheirLaunches) {
  NodeOps nodes;  // of two graphs whose nodes have the same lower bits
  nodes.add(kGraph + 0, 10, 0);
  nodes.add(kGraph + 1, 11, 0);
  nodes.add(kCopy + 0, 20, 1);
  TraceMaker maker;
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::int64_t at = kEpoch + 1000 * step;
    const std::int64_t launch = 5 + 10 * step;
    const std::string name = step == 0 ? "a" : "b";
    maker.call("cudaGraphLaunch", at + 100, at + 150, launch);
    maker.call("cudaGraphLaunch", at + 160, at + 200, launch + 1);
    maker.kernel(name + "2", at + 400, at + 500, 13, launch + 1).graph_node = kCopy + 0;
    maker.kernel(name + "0", at + 300, at + 350, 13, launch).graph_node = kCopy + 0;
    maker.kernel(name + "1", at + 350, at + 360, 13, launch).graph_node = kCopy + 1;
    maker.kernel(name + "3", at + 550, at + 560, 13, launch + 1).graph_node =
        kCopy + 1;  // of the first graph only
  }
  const std::vector<TracedStep> steps = {
      {.step = 0, .begin_ns = kEpoch + 50, .end_ns = kEpoch + 700, .nodes = &nodes},
      {.step = 1, .begin_ns = kEpoch + 1050, .end_ns = kEpoch + 1700, .nodes = &nodes}};
  const TraceRows rows = rows_of(maker.trace, steps, kEpoch, "cuda");
  for (const std::string name : {"a", "b"}) {
    EXPECT_EQ(activity_named(rows, name + "0").op, 10);
    EXPECT_EQ(activity_named(rows, name + "1").op, 11);
    EXPECT_EQ(activity_named(rows, name + "2").op, 20);
    EXPECT_FALSE(activity_named(rows, name + "3").op.has_value());
  }
  EXPECT_EQ(rows.without_op, 2);
}

TEST(StepTrace, CallsTellTheOpOfStepsThatAreSubmittedOpByOp) {
  TraceMaker maker;
  maker.call("cudaLaunchKernel", 110, 120, 1);
  maker.call("cuLaunchKernel", 112, 118, 1);  // the same launch, one layer below
  maker.call("cuLaunchKernel", 155, 160, 2);
  maker.kernel("first", 130, 140, 7, 1);
  maker.kernel("second", 450, 460, 7, 2);   // runs after its step's host has gone on, within the step
  maker.kernel("nobody", 300, 310, 7, 99);  // no call is known
  const std::vector<TracedStep> steps = {
      {.step = 0,
       .begin_ns = 100,
       .end_ns = 500,
       .ops = {{.op = 4, .begin_ns = 105, .end_ns = 125}, {.op = 5, .begin_ns = 150, .end_ns = 170}}}};
  const TraceRows rows = rows_of(maker.trace, steps, 0, "cuda");
  EXPECT_EQ(activity_named(rows, "first").op, 4);
  EXPECT_EQ(activity_named(rows, "second").op, 5);
  EXPECT_FALSE(activity_named(rows, "nobody").op.has_value());
  EXPECT_EQ(activity_named(rows, "nobody").step, 0);
  EXPECT_EQ(rows.without_op, 1);
}

TEST(StepTrace, AnOpThatWasOneKernelAloneIsKnownByIt) {
  TraceMaker maker;
  NodeOps nodes;
  for (std::uint64_t node = 0; node < 5; ++node) nodes.add(node, 10 + node / 2);
  maker.call("cudaGraphLaunch", 10, 20, 5);
  for (std::uint64_t node = 0; node < 3;
       ++node) {  // op 10 is two kernels, 11 a kernel and a copy, 12 a kernel and a fill
    const auto start = static_cast<std::int64_t>(100 * node + 100);
    maker.kernel("k", start, start + 50, 7, 5).graph_node = node == 2 ? 4 : node;
  }
  maker.kernel("of 11", 500, 550, 7, 5).graph_node = 2;
  nodes.add(5, 12);
  maker.kernel("rooflm::fill_memory(Fill)", 580, 590, 7, 5).graph_node = 5;
  maker.trace.activities.push_back({.kind = ActivityKind::copy,
                                    .name = maker.name("copy"),
                                    .start_ns = 560,
                                    .end_ns = 570,
                                    .stream = 7,
                                    .correlation = 5,
                                    .graph_node = 3});
  const std::vector<TracedStep> steps = {{.step = 0, .begin_ns = 0, .end_ns = 900, .nodes = &nodes}};
  const TraceRows rows = rows_of(maker.trace, steps, 0, "cuda");
  const auto alone = kernels_alone(rows, 0);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone.begin()->first, 12);
  const auto activity = std::ranges::find(rows.activities, alone.begin()->second, &record::Activity::id);
  EXPECT_EQ(activity->op, 12);
  EXPECT_TRUE(kernels_alone(rows, 1).empty());
}

TEST(StepTrace, MemoryBelongsToTheOpThatNeedsItOrUsedItLast) {
  TraceMaker maker;
  const auto memory = [&](const std::string& text, std::int64_t time, std::int64_t bytes) {
    maker.trace.activities.push_back({.kind = ActivityKind::memory,
                                      .name = maker.name(text),
                                      .start_ns = kEpoch + time,
                                      .end_ns = kEpoch + time,
                                      .bytes = bytes,
                                      .address = 0x100});
  };
  memory("output", 90, 64);
  memory("scratch", 150, 32);
  memory("next", 210, 64);
  memory("input", 215, -64);
  memory("last", 320, -64);
  memory("late", 330, 8);
  const std::vector<TracedStep> steps = {
      {.step = 0,
       .begin_ns = kEpoch + 80,
       .end_ns = kEpoch + 400,
       .ops = {{.op = 4, .begin_ns = kEpoch + 100, .end_ns = kEpoch + 200},
               {.op = 5, .begin_ns = kEpoch + 220, .end_ns = kEpoch + 300}}}};
  const TraceRows rows = rows_of(maker.trace, steps, kEpoch, "cuda");
  EXPECT_EQ(activity_named(rows, "output").op, 4);
  EXPECT_EQ(activity_named(rows, "scratch").op, 4);
  EXPECT_EQ(activity_named(rows, "next").op, 5);
  EXPECT_EQ(activity_named(rows, "input").op, 4);
  EXPECT_EQ(activity_named(rows, "last").op, 5);
  EXPECT_FALSE(activity_named(rows, "late").op.has_value());
  EXPECT_EQ(activity_named(rows, "input").bytes, -64);
  EXPECT_EQ(activity_named(rows, "output").extra, R"({"address":256})");
  const auto name = std::ranges::find(rows.names, "output", &record::ActivityName::text);
  EXPECT_EQ(name->kind, "memory");
  EXPECT_EQ(rows.kernels, 0);
}

TEST(StepTrace, WorkBelongsToTheStepThatAskedForItAndNothingElseIsKept) {
  TraceMaker maker;
  maker.call("cudaGraphLaunch", 10, 20, 1);
  maker.call("cudaGraphLaunch", 210, 220, 2);
  maker.kernel("late", 205, 206, 7, 1);  // asked for in the first step
  maker.kernel("own", 230, 240, 7, 2);
  maker.kernel("before", 150, 160, 7, 77);  // between the steps, of no known call
  const std::vector<TracedStep> steps = {{.step = 8, .begin_ns = 200, .end_ns = 300},
                                         {.step = 7, .begin_ns = 0, .end_ns = 100}};
  const TraceRows rows = rows_of(maker.trace, steps, 0, "cuda");
  EXPECT_EQ(activity_named(rows, "late").step, 7);
  EXPECT_EQ(activity_named(rows, "own").step, 8);
  EXPECT_EQ(rows.outside, 1);
  EXPECT_EQ(std::ranges::count(rows.names, "before", &record::ActivityName::text), 0);
}

/// The launch of a step whose device was held ends before the step begins.
TEST(StepTrace, AStepThatWasHeldOwnsWhatWasAskedForBefore) {
  TraceMaker maker;
  maker.call("cudaGraphLaunch", 110, 190, 1);
  maker.kernel("held", 205, 240, 7, 1);
  const std::vector<TracedStep> steps = {{.step = 2, .begin_ns = 200, .end_ns = 300, .asked_ns = 100}};
  const TraceRows rows = rows_of(maker.trace, steps, 0, "cuda");
  EXPECT_EQ(activity_named(rows, "held").step, 2);
  EXPECT_EQ(activity_named(rows, "cudaGraphLaunch").step, 2);
  EXPECT_EQ(activity_named(rows, "step").start_ns, 200);
  EXPECT_EQ(activity_named(rows, "step").lane, activity_named(rows, "cudaGraphLaunch").lane);
  EXPECT_EQ(rows.outside, 0);
}

TEST(StepTrace, LaunchesAreDescribedWithWhatIsKnown) {
  const KernelLaunch launch{.grid = {264, 1, 1}, .block = {256, 1, 1}, .cluster = {2, 1, 1}, .registers = 32};
  EXPECT_EQ(describe_launch(launch, nullptr, std::nullopt),
            R"({"grid":[264,1,1],"block":[256,1,1],"registers":32,"shared_static":0,"shared_dynamic":0,)"
            R"("local":0,"cluster":[2,1,1]})");
  const DeviceLimits device{.multiprocessors = 132,
                            .warps = 64,
                            .blocks = 32,
                            .registers = 65536,
                            .shared_bytes = 233472,
                            .major = 9};
  const std::string text = describe_launch(launch, &device, 12);
  EXPECT_NE(text.find(R"("occupancy":1,"occupancy_limit":"threads","waves":0.25)"), std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("node":12})"), std::string::npos) << text;
}

TEST(StepTrace, NothingTracedIsNothing) {
  const TraceRows rows = rows_of({}, {}, 0, "cuda");
  EXPECT_TRUE(rows.activities.empty());
}

}  // namespace
}  // namespace rooflm::trace
