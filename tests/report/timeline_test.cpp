// Timelines: which events and steps they hold, on which lanes, and what is in use meanwhile.
#include "report/page/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "report/page/document.h"
#include "tests/report/timeline_runs.h"

namespace rooflm::report {
namespace {

std::vector<std::string> texts_of(const Timeline& timeline, const std::string& kind) {
  std::vector<std::string> texts;
  for (const TimelineEvent& event : timeline.events) {
    const TimelineName& name = timeline.names.at(event.name);
    if (name.kind == kind) texts.push_back(name.text);
  }
  return texts;
}

TEST(Timeline, OfNothingIsEmpty) {
  const Timeline timeline = timeline_of(RunData{}, kAnyEvents);
  EXPECT_TRUE(timeline.events.empty());
  EXPECT_TRUE(timeline.source.empty());
}

TEST(Timeline, OfARecordWithoutActivitiesShowsOps) {
  RunData run = program_of_timeline();
  add_op_steps(run, {700, 600, 900});
  const Timeline timeline = timeline_of(run, kAnyEvents);
  EXPECT_EQ(timeline.source, "ops");
  ASSERT_EQ(timeline.steps.size(), 3U);
  EXPECT_EQ(timeline.steps.at(timeline.shown).step, 0) << "700 ns is the median";
  EXPECT_EQ(timeline.steps[0].kind, "observed");
  EXPECT_EQ(timeline.steps[0].start_ns, 0) << "time begins with the first event";
  EXPECT_EQ(timeline.steps[0].end_ns, 700);
  EXPECT_EQ(timeline.origin_ns, 5'000);
  EXPECT_EQ(texts_of(timeline, "op").size(), 18U);
  EXPECT_TRUE(std::ranges::is_sorted(timeline.events, {}, &TimelineEvent::start_ns));
  std::vector<std::string> lanes;
  for (const TimelineLane& lane : timeline.lanes) lanes.push_back(lane.kind + " " + lane.name);
  EXPECT_EQ(lanes, (std::vector<std::string>{"range steps, phases, blocks", "range blocks, background",
                                             "device ops", "device ops, background"}));
  EXPECT_FALSE(timeline.notes.empty()) << "it says what the bars are";
}

TEST(Timeline, RangesFollowTheProgram) {
  RunData run = program_of_timeline();
  add_op_steps(run, {700});
  const Timeline timeline = timeline_of(run, kAnyEvents);
  EXPECT_EQ(texts_of(timeline, "step"), (std::vector<std::string>{"step 0"}));
  EXPECT_EQ(texts_of(timeline, "phase"), (std::vector<std::string>{"forward", "backward", "optimizer"}))
      << "an op of the background parts no phase";
  EXPECT_EQ(texts_of(timeline, "layer"), (std::vector<std::string>{"h.0", "h.1", "h.1", "h.0"}));
  EXPECT_EQ(texts_of(timeline, "block"), (std::vector<std::string>{"attention", "feed_forward", "attention",
                                                                   "attention", "optimizer", "attention"}));
  std::vector<std::string> of_update;  // one op: its phase and its block begin and end with it
  for (const TimelineEvent& event : timeline.events) {
    if (timeline.lanes.at(event.lane).name == "blocks, background")
      of_update.push_back(timeline.names.at(event.name).kind);
  }
  EXPECT_EQ(of_update, (std::vector<std::string>{"phase", "block"})) << "what is outside comes first";
  for (const TimelineEvent& event : timeline.events) {
    const TimelineName& name = timeline.names.at(event.name);
    if (name.text != "backward") continue;
    EXPECT_EQ(event.start_ns, 300);
    EXPECT_EQ(event.end_ns, 700);
    EXPECT_EQ(timeline.classes.at(event.event_class), "backward");
  }
}

TEST(Timeline, KeepsTheMedianStepWhateverItCosts) {
  RunData run = program_of_timeline();
  add_op_steps(run, {610, 700, 650, 800, 640, 660});
  const Timeline one = timeline_of(run, 1);
  ASSERT_EQ(one.steps.size(), 1U);
  EXPECT_EQ(one.steps[0].step, 2) << "650 and 660 are as near; the first of them";
  EXPECT_EQ(one.shown, 0U);
  const Timeline three = timeline_of(run, 18);
  std::vector<std::int64_t> steps;
  for (const TimelineStep& step : three.steps) steps.push_back(step.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 2, 3})) << "with the fastest and the slowest";
  EXPECT_EQ(three.shown, 1U);
  EXPECT_TRUE(std::ranges::any_of(
      three.notes, [](const std::string& note) { return note.starts_with("3 of 6 observed steps"); }));
}

TEST(Timeline, SubmittedOpsOfAGpuStandOneAfterTheOther) {
  RunData run = program_of_timeline();
  run.run.config.set("device", "cuda:0");
  for (const TimedOp& timed : run.ops) {
    run.events.push_back(
        {.step = 0, .op = timed.op.op, .start_ns = 10 * timed.op.op, .device_ns = 500, .wall_ns = 10});
  }
  const Timeline timeline = timeline_of(run, kAnyEvents);
  std::int64_t end = 0;
  for (const TimelineEvent& event : timeline.events) {
    if (timeline.lanes.at(event.lane).name != "ops") continue;
    EXPECT_GE(event.start_ns, end);
    end = event.end_ns;
  }
  EXPECT_EQ(end, 5 * 500);
  EXPECT_EQ(timeline.steps.at(0).end_ns, 5 * 500);
}

TEST(Timeline, JoinsActivitiesWithOpsCallsAndSteps) {
  const RunData run = traced_run();
  const Timeline timeline = timeline_of(run, kAnyEvents);
  EXPECT_EQ(timeline.source, "activities");
  ASSERT_EQ(timeline.steps.size(), 2U);
  EXPECT_EQ(timeline.steps[0].kind, "traced");
  ASSERT_EQ(timeline.launches.size(), 1U) << "the node of the graph makes no difference";
  EXPECT_EQ(timeline.launches[0].grid[0], 8);
  std::size_t kernels = 0;
  for (const TimelineEvent& event : timeline.events) {
    const TimelineName& name = timeline.names.at(event.name);
    if (name.kind == "kernel") {
      ++kernels;
      ASSERT_TRUE(event.cause.has_value());
      EXPECT_EQ(timeline.names.at(timeline.events.at(*event.cause).name).text, "cudaGraphLaunch");
      const std::string op_class = run.find_op(*event.op)->op.op_class;
      EXPECT_EQ(timeline.classes.at(event.event_class), op_class == "matmul" ? "gemm" : op_class);
      EXPECT_EQ(name.short_text, "gemm");
      EXPECT_TRUE(event.launch.has_value());
    }
    if (name.kind == "copy") {
      EXPECT_EQ(event.bytes, 4096);
      EXPECT_EQ(timeline.classes.at(event.event_class), "copy");
      EXPECT_FALSE(event.cause.has_value());
    }
  }
  EXPECT_EQ(kernels, 12U);
  EXPECT_EQ(texts_of(timeline, "api").size(), 2U) << "calls that started what ran in a step";
  EXPECT_EQ(texts_of(timeline, "range").size(), 1U) << "a range around a step";
  const Timeline one = timeline_of(run, 1);
  EXPECT_EQ(texts_of(one, "api").size(), 1U) << "a call of another step stays away";
}

TEST(Timeline, AStepBeginsWhenItsRangeDoesThoughItWasAskedForBefore) {
  RunData run = program_of_timeline();
  run.activity_names = {{.name = 0, .kind = "api", .text = "cudaGraphLaunch"},
                        {.name = 1, .kind = "range", .text = "step"},
                        {.name = 2, .kind = "kernel", .text = "k"}};
  run.lanes = {{.lane = 0, .device = "cuda:0", .stream = 7},
               {.lane = 1, .kind = "host", .device = "cpu", .thread = 1}};
  run.activities = {
      {.id = 0, .name = 0, .lane = 1, .start_ns = 1000, .end_ns = 5000, .correlation = 3, .step = 4},
      {.id = 1, .name = 1, .lane = 1, .start_ns = 6000, .end_ns = 9000, .step = 4},
      {.id = 2, .name = 2, .lane = 0, .start_ns = 6500, .end_ns = 8000, .correlation = 3, .step = 4}};
  const Timeline timeline = timeline_of(run, kAnyEvents);
  ASSERT_EQ(timeline.steps.size(), 1U);
  EXPECT_EQ(timeline.steps[0].start_ns, 5000);  // after the first event
  EXPECT_EQ(timeline.steps[0].end_ns, 8000);
  EXPECT_EQ(timeline.events.front().start_ns, 0);
}

TEST(Timeline, MemoryFollowsTheOpsOfAStep) {
  RunData run = program_of_timeline();
  add_op_steps(run, {700});
  run.memory_events = {{.seq = 0, .op = -1, .bytes = 100, .live_bytes = 100},
                       {.seq = 1, .op = 3, .bytes = 40, .live_bytes = 140},
                       {.seq = 2, .op = 3, .bytes = -20, .live_bytes = 120},
                       {.seq = 3, .op = 5, .bytes = -20, .live_bytes = 100}};
  const Timeline timeline = timeline_of(run, kAnyEvents);
  ASSERT_EQ(timeline.series.size(), 1U);
  const TimelineSeries& memory = timeline.series[0];
  EXPECT_EQ(memory.name + " " + memory.unit, "memory byte");
  EXPECT_EQ(memory.time_ns, (std::vector<std::int64_t>{0, 100, 200, 300, 400}));
  EXPECT_EQ(memory.value, (std::vector<double>{100, 140, 120, 100, 100}));
}

TEST(Timeline, MemoryThatWasSeenTakenAndGivenBackHasItsOwnTimes) {
  RunData run = program_of_timeline();
  run.activity_names = {{.name = 0, .kind = "memory", .text = "allocate device memory of a pool"},
                        {.name = 1, .kind = "memory", .text = "free device memory of a pool"},
                        {.name = 2, .kind = "range", .text = "step"}};
  run.lanes = {{.lane = 1, .kind = "host", .device = "cpu", .thread = 1}};
  run.activities = {
      {.id = 0, .name = 2, .lane = 1, .start_ns = 1000, .end_ns = 2000, .step = 4},
      {.id = 1, .name = 0, .lane = 1, .start_ns = 1100, .end_ns = 1100, .bytes = 40, .step = 4, .op = 3},
      {.id = 2, .name = 0, .lane = 1, .start_ns = 1200, .end_ns = 1200, .bytes = 8, .step = 4, .op = 5},
      {.id = 3, .name = 1, .lane = 1, .start_ns = 1300, .end_ns = 1300, .bytes = -40, .step = 4, .op = 5}};
  run.memory_events = {{.seq = 0, .op = -1, .bytes = 100, .live_bytes = 100},
                       {.seq = 1, .op = 3, .bytes = 40, .live_bytes = 140}};
  const Timeline timeline = timeline_of(run, kAnyEvents);
  ASSERT_EQ(timeline.series.size(), 1U);
  const TimelineSeries& memory = timeline.series[0];
  EXPECT_EQ(memory.name + " " + memory.unit, "memory byte");
  EXPECT_EQ(memory.time_ns, (std::vector<std::int64_t>{0, 100, 200, 300}));
  EXPECT_EQ(memory.value, (std::vector<double>{100, 140, 148, 108}));
  EXPECT_EQ(texts_of(timeline, "memory").size(), 3U);
}

TEST(Timeline, LeavesOutWhatCannotBe) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  RunData run = traced_run();
  const std::size_t events = timeline_of(run, kAnyEvents).events.size();
  for (const auto& [start, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {kLeast, kMost}, {0, kMost}, {kLeast, 0}, {1'000'300, 1'000'200}}) {
    run.activities.push_back({.id = 900,
                              .name = 77,
                              .lane = 99,
                              .start_ns = start,
                              .end_ns = end,
                              .step = 1,
                              .op = kMost,
                              .extra = "[[[["});
  }
  run.gauges = {{.device = "", .name = "x", .time_ns = kLeast, .value = 1, .unit = ""},
                {.device = "",
                 .name = "x",
                 .time_ns = 1'000'000,
                 .value = std::numeric_limits<double>::infinity(),
                 .unit = ""}};
  const Timeline timeline = timeline_of(run, kAnyEvents);
  EXPECT_EQ(timeline.events.size(), events);
  EXPECT_TRUE(timeline.series.empty());
  RunData ops = program_of_timeline();
  ops.events = {{.step = 0, .op = 2, .start_ns = kMost, .device_ns = kMost},
                {.step = 0, .op = kLeast, .start_ns = 10, .device_ns = -5},
                {.step = 0, .op = kMost, .start_ns = 10, .device_ns = 5}};
  ops.memory_events = {{.seq = 0, .op = kLeast, .bytes = kMost, .live_bytes = kMost},
                       {.seq = 1, .bytes = 1, .live_bytes = kLeast, .time_ns = kLeast}};
  EXPECT_EQ(texts_of(timeline_of(ops, kAnyEvents), "op").size(), 1U);
  const RecordSet set{.files = {}, .runs = {ops, run}};
  EXPECT_FALSE(make_document(set, nullptr).empty());
}

}  // namespace
}  // namespace rooflm::report
