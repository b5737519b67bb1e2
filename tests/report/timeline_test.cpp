// Timelines: which events and steps they hold, on which lanes, and how they travel in the document.
#include "report/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/document.h"
#include "report/packed.h"

namespace rooflm::report {
namespace {

using TimelineJson = nlohmann::json;

constexpr std::size_t kAnyEvents = 60'000;
/// What a page of one step may have, less the page itself (0.75 MB).
constexpr std::size_t kMostDocumentBytes = 2'200'000;

std::string bytes_of_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    if (letter == '=') break;
    bits = bits << 6U | static_cast<std::uint32_t>(letters.find(letter));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> static_cast<unsigned>(count) & 0xFFU);
  }
  return bytes;
}

/// The other direction of pack().
std::vector<std::int64_t> unpack(const std::string& text) {
  std::vector<std::int64_t> values;
  std::uint64_t coded = 0;
  std::uint64_t value = 0;
  unsigned shift = 0;
  for (const char letter : bytes_of_base64(text)) {
    const auto byte = static_cast<unsigned char>(letter);
    coded |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    value += coded >> 1U ^ (~(coded & 1U) + 1U);
    values.push_back(static_cast<std::int64_t>(value));
    coded = 0;
    shift = 0;
  }
  return values;
}

TEST(Packed, ComesBack) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  for (const std::vector<std::int64_t>& values :
       std::vector<std::vector<std::int64_t>>{{},
                                              {0},
                                              {-1},
                                              {63, 64, -64, -65},
                                              {1'000'000'007, 1'000'000'007, 5},
                                              {kMost, kLeast, 0, kLeast, kMost, -1}}) {
    EXPECT_EQ(unpack(pack(values)), values);
  }
  EXPECT_EQ(base64("Man"), "TWFu");
  EXPECT_EQ(base64("Ma"), "TWE=");
  const std::vector<std::int64_t> in_order(3000, 7);
  EXPECT_LE(pack(in_order).size(), 4000U) << "what repeats takes a byte";
}

/// Forward and backward of two layers, an update beside them, as a program.
RunData program_of_timeline() {
  RunData run;
  run.run.label = "made up";
  run.run.config.set("device", "cpu");
  const auto add = [&](const char* phase, const char* scope, const char* op_class, const char* lane) {
    TimedOp timed;
    timed.op = {.op = static_cast<std::int64_t>(run.ops.size()) + 2,  // two of the set-up are left out
                .kind = "kind",
                .op_class = op_class,
                .kernel = std::string("kernel_") + op_class,
                .phase = phase,
                .scope = scope};
    timed.op.lane = lane;
    run.ops.push_back(timed);
  };
  add("forward", "h.0/attention/qk", "matmul", "compute");
  add("forward", "h.0/feed_forward/fc1", "matmul", "compute");
  add("forward", "h.1/attention/qk", "matmul", "compute");
  add("backward", "h.1/attention/qk", "matmul", "compute");
  add("optimizer", "optimizer", "optimizer", "background");
  add("backward", "h.0/attention/qk", "norm", "compute");
  return run;
}

/// Events of ops back to back, 100 ns each, in steps of the lengths given (the last op takes what is left).
void add_op_steps(RunData& run, const std::vector<std::int64_t>& lengths) {
  std::int64_t now = 5'000;
  for (std::size_t step = 0; step < lengths.size(); ++step) {
    for (const TimedOp& timed : run.ops) {
      const bool is_last = &timed == &run.ops.back();
      const std::int64_t before = 100 * static_cast<std::int64_t>(run.ops.size() - 1);
      run.events.push_back({.step = static_cast<std::int64_t>(step),
                            .op = timed.op.op,
                            .start_ns = now + 100 * (timed.op.op - 2),
                            .device_ns = is_last ? lengths[step] - before : 100});
    }
    run.samples.push_back({static_cast<std::int64_t>(step), "step", 1e-3, "observed"});
    now += lengths[step] + 10'000;
  }
}

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

/// Two traced steps of kernels on a stream and calls on a thread, a call before each, one range of no step.
RunData traced_run() {
  RunData run = program_of_timeline();
  run.run.config.set("device", "cuda:0");
  run.lanes = {{.lane = 5, .kind = "host", .device = "cpu", .thread = 9, .name = "main thread"},
               {.lane = 3, .kind = "device", .device = "cuda:0", .stream = 7, .name = "stream 7"}};
  run.activity_names = {{.name = 0, .kind = "kernel", .text = "void gemm<float>(int)"},
                        {.name = 1, .kind = "api", .text = "cudaGraphLaunch"},
                        {.name = 2, .kind = "copy", .text = "host to device"},
                        {.name = 3, .kind = "range", .text = "training"}};
  std::int64_t id = 0;
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::int64_t begin = 1'000'000 + 10'000 * step;
    run.activities.push_back({.id = id++,
                              .name = 1,
                              .lane = 5,
                              .start_ns = begin - 50,
                              .end_ns = begin - 20,
                              .correlation = 70 + step});
    for (std::int64_t i = 0; i < 6; ++i) {
      run.activities.push_back({.id = id++,
                                .name = 0,
                                .lane = 3,
                                .start_ns = begin + 100 * i,
                                .end_ns = begin + 100 * i + 90 + 5 * step,
                                .correlation = 70 + step,
                                .step = step,
                                .op = 2 + i,
                                .extra = R"({"grid":[8,1,1],"node":)" + std::to_string(i) + "}"});
    }
    run.activities.push_back({.id = id++,
                              .name = 2,
                              .lane = 3,
                              .start_ns = begin + 600,
                              .end_ns = begin + 700,
                              .bytes = 4096,
                              .step = step});
  }
  run.activities.push_back({.id = id++, .name = 3, .lane = 5, .start_ns = 0, .end_ns = 2'000'000});
  run.samples = {{0, "step", 1e-3, "traced"}, {1, "step", 1e-3, "traced"}};
  return run;
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

TEST(Timeline, GaugesAreCutToTheTimeThatIsShown) {
  RunData run = traced_run();
  run.activities.pop_back();  // the range around everything
  const std::int64_t begin = 1'000'000 - 50;
  for (const std::int64_t time : {begin - 500, begin - 100, begin + 200, begin + 99'000'000}) {
    run.gauges.push_back(
        {.device = "cuda:0", .name = "power_w", .time_ns = time, .value = 100.25, .unit = "W"});
  }
  const Timeline timeline = timeline_of(run, kAnyEvents);
  ASSERT_EQ(timeline.series.size(), 1U);
  EXPECT_EQ(timeline.series[0].time_ns, (std::vector<std::int64_t>{0, 200}))
      << "the last before, then those inside";
  const RecordSet set{.files = {}, .runs = {run}};
  const auto json =
      TimelineJson::parse(make_document(set, nullptr)).at("runs").at(0).at("timeline").at("series").at(0);
  const std::vector<std::int64_t> values = unpack(json.at("value"));
  ASSERT_EQ(values.size(), 2U);
  EXPECT_NEAR(static_cast<double>(values[0]) * json.at("step").get<double>(), 100.25, 1e-3);
  EXPECT_EQ(unpack(json.at("time_ns")), (std::vector<std::int64_t>{0, 200}));
}

TEST(Timeline, TravelsAsPackedColumns) {
  const RunData run = traced_run();
  const Timeline timeline = timeline_of(run, kAnyEvents);
  const RecordSet set{.files = {}, .runs = {run}};
  const auto json = TimelineJson::parse(make_document(set, nullptr)).at("runs").at(0).at("timeline");
  const auto& events = json.at("events");
  ASSERT_EQ(events.at("count"), timeline.events.size());
  const auto column = [&](const char* key) { return unpack(events.at(key)); };
  for (const auto& [key, packed] : events.items()) {
    if (key == "count") continue;
    EXPECT_EQ(unpack(packed).size(), timeline.events.size()) << key;
  }
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const TimelineEvent& event = timeline.events[i];
    EXPECT_EQ(column("start_ns")[i], event.start_ns);
    EXPECT_EQ(column("ns")[i], event.end_ns - event.start_ns);
    EXPECT_EQ(column("op")[i], event.op.value_or(-1));
    EXPECT_EQ(column("cause")[i], event.cause ? static_cast<std::int64_t>(*event.cause) : -1);
    EXPECT_EQ(column("class")[i], static_cast<std::int64_t>(event.event_class));
  }
  EXPECT_EQ(json.at("steps").size(), 2U);
  EXPECT_EQ(json.at("launches").at(0).at("grid").at(0), 8);
  EXPECT_TRUE(TimelineJson::parse(make_document({.files = {}, .runs = {RunData{}}}, nullptr))
                  .at("runs")
                  .at(0)
                  .at("timeline")
                  .is_null());
}

TEST(Timeline, CountersAndCausesTravelBesideIt) {
  RunData run = traced_run();
  for (TimedOp& timed : run.ops) {
    timed.op.matmul_flop = 1000;
    timed.time = record::OpTime{.op = timed.op.op, .instances = 1, .device_s = 1e-6};
    timed.roof_s = 4e-7;
    timed.bound = "matmul bf16";
  }
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{{"tensor_bf16_flop", 900},
                                                                               {"fp32_flop", 100},
                                                                               {"dram_read_bytes", 150},
                                                                               {"dram_written_bytes", 50},
                                                                               {"l2_bytes", 500}}) {
    run.counters.push_back({.phase = "forward",
                            .scope = "",
                            .name = name,
                            .value = value,
                            .unit = "",
                            .source = "cupti",
                            .op = 3});
  }
  const RecordSet set{.files = {}, .runs = {run}};
  const auto json = TimelineJson::parse(make_document(set, nullptr)).at("runs").at(0);
  const auto& counted = json.at("counted");
  ASSERT_EQ(counted.at("op"), TimelineJson::parse("[3]"));
  EXPECT_EQ(counted.at("flop").at(0), 1000);
  EXPECT_NEAR(counted.at("flop_per_s").at(0).get<double>(), 1e9, 1);
  EXPECT_EQ(counted.at("dram_intensity").at(0), 5);
  EXPECT_EQ(counted.at("l2_intensity").at(0), 2);
  EXPECT_TRUE(counted.at("l1_bytes").at(0).is_null());
  ASSERT_FALSE(json.at("why").empty());
  double seconds = 0;
  for (const auto& cause : json.at("why").at(0).at("causes")) seconds += cause.at("seconds").get<double>();
  EXPECT_NEAR(seconds, json.at("why").at(0).at("time_s").get<double>(), 1e-12) << "causes add up";
  run.counters.clear();
  EXPECT_TRUE(TimelineJson::parse(make_document({.files = {}, .runs = {run}}, nullptr))
                  .at("runs")
                  .at(0)
                  .at("counted")
                  .is_null());
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

/// A step of 20,000 events: 3,000 ops with three kernels each, a call for each kernel, copies.
RunData long_step() {
  RunData run;
  run.run.config.set("device", "cuda:0");
  run.lanes = {{.lane = 0, .kind = "host", .device = "cpu", .thread = 1, .name = "main thread"},
               {.lane = 1, .kind = "device", .device = "cuda:0", .stream = 7, .name = "stream 7"}};
  constexpr std::int64_t kOps = 3000;
  for (std::int64_t op = 0; op < kOps; ++op) {
    TimedOp timed;
    timed.op = {.op = op,
                .kind = "matmul",
                .op_class = "matmul",
                .kernel = "kernel_" + std::to_string(op % 40),
                .name = "tensor_" + std::to_string(op),
                .phase = op < kOps / 3 ? "forward" : "backward",
                .scope = "h." + std::to_string(op / 60) + "/attention/qk",
                .dtype = "bf16",
                .shapes = "[1024,768] x [768,2304] -> [1024,2304]",
                .matmul_flop = 1'000'000'007 + op,
                .bytes_read = 123'457 * op};
    timed.time = record::OpTime{.op = op,
                                .instances = 1,
                                .device_s = 1.2345678e-5 + 1e-9 * static_cast<double>(op),
                                .mean_s = 1.2e-5};
    timed.roof_s = 1e-5 / 3;
    run.ops.push_back(timed);
  }
  for (std::int64_t name = 0; name < 60; ++name) {
    run.activity_names.push_back(
        {.name = name,
         .kind = name < 50 ? "kernel" : "api",
         .text = "void cutlass::Kernel2<" + std::string(200, 'x') + std::to_string(name) + ">"});
  }
  std::int64_t now = 1'234'567'890;
  std::uint64_t noise = 1;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto length = static_cast<std::int64_t>(5'000 + (noise >> 33U) % 60'000);
    run.activities.push_back({.id = 2 * i,
                              .name = 50 + i % 10,
                              .lane = 0,
                              .start_ns = now - 400'000,
                              .end_ns = now - 396'000,
                              .correlation = i,
                              .step = 4});
    run.activities.push_back({.id = 2 * i + 1,
                              .name = i % 50,
                              .lane = 1,
                              .start_ns = now,
                              .end_ns = now + length,
                              .correlation = i,
                              .step = 4,
                              .op = i * kOps / 10'000,
                              .extra = R"({"grid":[)" + std::to_string(i % 97) +
                                       R"(,8,1],"block":[256,1,1],"registers":168,"waves":1.21,"node":)" +
                                       std::to_string(i) + "}"});
    now += length + 900;
  }
  return run;
}

TEST(Timeline, AStepOf20000EventsTakesLittleRoom) {
  const RecordSet set{.files = {}, .runs = {long_step()}};
  const std::string document = make_document(set, nullptr);
  const auto timeline = TimelineJson::parse(document).at("runs").at(0).at("timeline");
  EXPECT_GE(timeline.at("events").at("count").get<std::size_t>(), 20'000U);
  EXPECT_LT(document.size(), kMostDocumentBytes);
  RecordProperty("document_bytes", std::to_string(document.size()));
  RecordProperty("timeline_bytes", std::to_string(timeline.dump().size()));
}

}  // namespace
}  // namespace rooflm::report
