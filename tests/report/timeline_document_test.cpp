// The timeline and what stands beside it in the document: packed columns, gauges, counters, how much room
// they take.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/page/document.h"
#include "report/page/packed.h"
#include "report/page/timeline.h"
#include "tests/report/timeline_runs.h"

namespace rooflm::report {
namespace {

using TimelineJson = nlohmann::json;

/// What a page of one step may have, less the page itself (0.75 MB).
constexpr std::size_t kMostDocumentBytes = 2'200'000;

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
