// Traced steps with kernels that overlap, gaps of every cause, and numbers that can be worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"
#include "report/findings/glance.h"
#include "report/model/contention.h"
#include "report/model/traced_kernels.h"
#include "report/verify/verify.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"

namespace rooflm::report {
namespace {

/// Numbers of names.
enum DeviceName : std::int64_t {
  kGemm,
  kUpdate,
  kStranger,
  kCopyName,
  kLaunch,
  kGraph,
  kWait,
  kRange,
  kTool
};

struct DeviceRun {
  std::vector<record::Op> ops;
  std::vector<record::Sample> samples;
  std::vector<record::Activity> activities;
  std::vector<record::Event> events;
  std::vector<record::Prediction> predictions;
  std::vector<record::Fact> facts;

  record::Activity& add(std::int64_t name, std::int64_t lane, std::int64_t start_us, std::int64_t end_us,
                        std::int64_t step, std::int64_t correlation) {
    activities.push_back({.id = static_cast<std::int64_t>(activities.size()),
                          .name = name,
                          .lane = lane,
                          .start_ns = 1000 * start_us,
                          .end_ns = 1000 * end_us,
                          .correlation = correlation,
                          .step = step});
    return activities.back();
  }
};

/// Step 0 replays a graph: 1000 us, of which 100 pass before the first kernel, 100 after the last. The gemm
/// runs alone for 100 us, then with the update beside it for 200, then the update alone for 100. A copy fills
/// 50 of the 100 us after that, before a stranger runs, which another call starts too late.
void add_overlapped_step(DeviceRun& run) {
  run.add(kRange, 2, 0, 1000, 0, 0).correlation.reset();
  run.add(kGraph, 2, 10, 40, 0, 5);
  run.add(kGemm, 0, 100, 400, 0, 5).op = 0;
  run.activities.back().extra = R"({"grid":[132,1,1],"block":[128,1,1],"occupancy":0.25,"waves":1})";
  run.add(kUpdate, 1, 200, 500, 0, 5).op = 1;
  run.add(kCopyName, 0, 520, 570, 0, 5);
  run.add(kLaunch, 2, 580, 590, 0, 6);
  run.add(kTool, 2, 585, 588, 0, 0).correlation.reset();
  run.add(kStranger, 0, 600, 700, 0, 6);
  run.add(kGemm, 0, 710, 900, 0, 6).op = 2;
  run.activities.back().extra = R"({"grid":[132,1,1],"block":[128,1,1],"occupancy":0.25,"waves":1})";
  run.add(kWait, 2, 600, 1000, 0, 7);
}

/// The same kernels one after the other.
void add_ordered_step(DeviceRun& run) {
  run.add(kRange, 2, 2000, 3000, 1, 0).correlation.reset();
  run.add(kGemm, 0, 2100, 2250, 1, 15).op = 0;
  run.activities.back().extra = R"({"grid":[132,1,1],"block":[128,1,1],"occupancy":0.25,"waves":1})";
  run.add(kUpdate, 0, 2250, 2450, 1, 15).op = 1;
  run.add(kGemm, 0, 2450, 2650, 1, 15).op = 2;
  run.activities.back().extra = R"({"grid":[132,1,1],"block":[128,1,1],"occupancy":0.25,"waves":1})";
  run.add(kStranger, 0, 2650, 2900, 1, 15);
}

DeviceRun device_run() {
  DeviceRun run;
  const auto op = [&](std::int64_t number, const char* kind, const char* op_class, const char* kernel,
                      const char* phase, const char* scope) {
    run.ops.push_back({.op = number,
                       .kind = kind,
                       .op_class = op_class,
                       .kernel = kernel,
                       .name = "t" + std::to_string(number),
                       .phase = phase,
                       .scope = scope,
                       .shapes = "[1]",
                       .matmul_flop = number == 1 ? 0 : 1000});
  };
  op(0, "matmul", "matmul", "algo 66", "forward", "h.0/attention/qkv");
  op(1, "adamw", "optimizer", "adamw", "optimizer", "optimizer");
  op(2, "matmul", "matmul", "algo 66", "forward", "h.1/attention/qkv");
  for (const auto& [step, kind, device_s] :
       {std::tuple{0, "traced", 800e-6}, std::tuple{1, "in_order", 800e-6}}) {
    run.samples.push_back({.step = step, .phase = "step", .seconds = 1000e-6, .kind = kind});
    run.samples.push_back({.step = step, .phase = "forward", .seconds = device_s, .kind = kind});
    run.samples.push_back({.step = step, .phase = "submit", .seconds = 40e-6, .kind = kind});
  }
  add_overlapped_step(run);
  add_ordered_step(run);
  run.facts = {{.key = "trace_lost", .value = 0, .unit = "records"},
               {.key = "multiprocessors", .value = 264, .unit = ""}};
  return run;
}

void write_device(const DeviceRun& made, const std::filesystem::path& path) {
  record::Writer writer(path, "made up");
  record::Run row{.label = "made up", .kind = "step"};
  row.config.set("device", "cuda:0");
  const std::int64_t run = writer.begin_run(row);
  writer.add(run, made.ops);
  writer.add(run, made.samples);
  writer.add(run, std::vector<record::Lane>{
                      {.lane = 0, .device = "cuda:0", .stream = 7, .name = "stream 7"},
                      {.lane = 1, .device = "cuda:0", .stream = 8, .name = "stream 8"},
                      {.lane = 2, .kind = "host", .device = "cpu", .thread = 1, .name = "thread 1"}});
  writer.add(run, std::vector<record::ActivityName>{
                      {.name = kGemm, .kind = "kernel", .text = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"},
                      {.name = kUpdate, .kind = "kernel", .text = "void rooflm::adamw<float>(int)"},
                      {.name = kStranger, .kind = "kernel", .text = "stranger"},
                      {.name = kCopyName, .kind = "copy", .text = "copy device to device"},
                      {.name = kLaunch, .kind = "api", .text = "cudaLaunchKernel"},
                      {.name = kGraph, .kind = "api", .text = "cudaGraphLaunch"},
                      {.name = kWait, .kind = "sync", .text = "wait for a stream"},
                      {.name = kRange, .kind = "range", .text = "step"},
                      {.name = kTool, .kind = "overhead", .text = "CUPTI instruments"}});
  writer.add(run, made.activities);
  writer.add(run, made.events);
  writer.add(run, made.predictions);
  for (const record::Fact& fact : made.facts) writer.add(run, fact);
  writer.end_run(run, "success");
  writer.finish();
}

RunData loaded(const DeviceRun& made) {
  const record::TemporaryFolder folder;
  write_device(made, folder / "a.rooflm");
  const std::vector<std::filesystem::path> files = {folder / "a.rooflm"};
  return load(files).runs.at(0);
}

constexpr double kUs = 1e-6;

TEST(DeviceTimes, EachMomentOfAStepIsCountedOnce) {
  const RunData run = loaded(device_run());
  const DeviceTimes times = device_times(run);
  ASSERT_EQ(times.steps.size(), 2U);
  const DeviceStep& step = times.steps[0];
  EXPECT_EQ(step.kind, "traced");
  EXPECT_EQ(step.kernels, 4U);
  EXPECT_NEAR(step.exclusive_s, 490 * kUs, 1e-12);  // 100 + 100 + 100 + 190
  EXPECT_NEAR(step.shared_s, 200 * kUs, 1e-12);
  EXPECT_NEAR(step.exclusive_s + step.shared_s + step.idle_total_s(), 1000 * kUs, 1e-12);
  EXPECT_NEAR(*step.wall_s, 1000 * kUs, 1e-12);
  EXPECT_NEAR(*step.event_s, 800 * kUs, 1e-12);
  EXPECT_EQ(times.outside, 0U);
}

TEST(DeviceTimes, AStepInWhichMemoryWasTracedIsNotTimed) {
  DeviceRun made = device_run();
  for (record::Sample& sample : made.samples) {
    if (sample.step == 1) sample.kind = "allocations";
  }
  const DeviceTimes times = device_times(loaded(made));
  ASSERT_EQ(times.steps.size(), 1U);
  EXPECT_EQ(times.steps[0].step, 0);
  EXPECT_EQ(times.kernels.size(), 4U);
}

TEST(DeviceTimes, IdleTimeHasACause) {
  const DeviceStep step = device_times(loaded(device_run())).steps.at(0);
  const auto idle = [&](IdleCause cause) { return step.idle_s.at(static_cast<std::size_t>(cause)) / kUs; };
  EXPECT_NEAR(idle(IdleCause::copy), 50, 1e-6);
  // 100 before the first kernel; 500 to 590 until the stranger was asked for, without copy and tool.
  EXPECT_NEAR(idle(IdleCause::host), 100 + 90 - 50 - 3, 1e-6);
  EXPECT_NEAR(idle(IdleCause::tracing), 3, 1e-6);
  EXPECT_NEAR(idle(IdleCause::dependency), 10 + 10, 1e-6);  // 590 to 600, 700 to 710
  EXPECT_NEAR(idle(IdleCause::sync), 100, 1e-6);
  EXPECT_NEAR(step.idle_within_s, 110 * kUs, 1e-12);
}

TEST(DeviceTimes, SharedTimeIsDividedAmongThoseThatRan) {
  const RunData run = loaded(device_run());
  const TracedKernels kernels(run);
  const TracedKernel& gemm = kernels.all().at(0);
  EXPECT_EQ(gemm.time.exclusive_ns, 100'000);
  EXPECT_NEAR(gemm.time.shared_ns, 100'000, 1e-3);
  EXPECT_NEAR(gemm.time.overlap(), 2.0 / 3, 1e-9);
  ASSERT_TRUE(gemm.time.beside.has_value());
  EXPECT_EQ(kernels.find(*gemm.time.beside)->name->short_name, "adamw");
}

TEST(DeviceTimes, ThreeAtOnceGetAThirdEach) {
  DeviceRun made = device_run();
  made.add(kStranger, 1, 300, 350, 0, 5);
  const RunData run = loaded(made);
  const TracedKernels kernels(run);
  EXPECT_NEAR(kernels.all().at(0).time.shared_ns, 75'000 + 50'000.0 / 3, 1e-3);
  double sum_s = 0;
  for (const TracedKernel& kernel : kernels.all()) sum_s += kernel.step_kind == kTraced ? kernel.part_s() : 0;
  EXPECT_NEAR(sum_s, kernels.times().steps[0].exclusive_s + kernels.times().steps[0].shared_s, 1e-12);
}

TEST(DeviceKernels, AreSummedByNameAndSeenBesideThePrediction) {
  const RunData run = loaded(device_run());
  const TracedKernels kernels(run);
  const auto sums = kernel_sums(kernels);
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_EQ(sums[0].kernel_class, "gemm");
  EXPECT_EQ(sums[0].instances, 2U);
  EXPECT_NEAR(sums[0].total_s, 490 * kUs, 1e-12);
  EXPECT_NEAR(sums[0].exclusive_s + sums[0].shared_s, 390 * kUs, 1e-12);
  EXPECT_NEAR(*sums[0].time_share, 390.0 / 690, 1e-9);
  EXPECT_EQ(sums[2].kernel_class, "unknown");
  const auto seen = seen_instances(run, kernels);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].explained, "2 layers x 1");
  EXPECT_EQ(seen[0].predicted, 2);
  EXPECT_DOUBLE_EQ(seen[0].seen, 2);
  EXPECT_TRUE(*seen[0].agrees());
}

TEST(DeviceKernels, WhatDoesNotSayItsLaunchesIsNotPredicted) {
  DeviceRun made = device_run();
  made.facts.push_back({.key = "unknown_launches", .value = 1, .unit = "ops", .text = "2"});
  const RunData run = loaded(made);
  const auto seen = seen_instances(run, TracedKernels(run));
  EXPECT_FALSE(seen[0].predicted.has_value());
  EXPECT_FALSE(seen[0].agrees().has_value());
  EXPECT_EQ(seen[1].predicted, 1);
}

TEST(Contention, TheSameKernelIsHeldAgainstItselfAlone) {
  const RunData run = loaded(device_run());
  const auto all = contention_of(TracedKernels(run));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].kernel_class, "gemm");
  EXPECT_EQ(all[0].beside, "optimizer");
  EXPECT_EQ(all[0].alone, 3U);  // both of the step in order, and the second one of the other
  EXPECT_EQ(all[0].together, 1U);
  EXPECT_NEAR(all[0].alone_s, 190 * kUs, 1e-12);
  EXPECT_NEAR(all[0].together_s, 300 * kUs, 1e-12);
  EXPECT_NEAR(all[0].lost_s, 110 * kUs, 1e-12);
  EXPECT_EQ(all[1].kernel, "adamw");
  EXPECT_NEAR(all[1].slowdown, 1.5, 1e-9);
  const auto gain = overlap_gain(device_times(run));
  ASSERT_TRUE(gain.has_value());
  EXPECT_NEAR(gain->in_order_s, 800 * kUs, 1e-12);
  EXPECT_NEAR(gain->overlapped_s, 800 * kUs, 1e-12);
}

TEST(DeviceViews, ShowWhatWasTracedAndNothingOtherwise) {
  RecordSet set;
  set.files.push_back({.name = "a"});
  set.runs.push_back(loaded(device_run()));
  const View kernels = make_view("kernels", set);
  ASSERT_EQ(kernels.tables.size(), 5U);
  EXPECT_EQ(kernels.tables[0].id, "kernels.classes");
  // In the forward pass there is the gemm alone: 100 us, half of 200 beside the update, and 190.
  const std::vector<Row>& classes = kernels.tables[0].table.rows;
  const auto gemm = std::ranges::find_if(classes, [](const Row& row) { return row.text("class") == "gemm"; });
  ASSERT_NE(gemm, classes.end());
  EXPECT_DOUBLE_EQ(gemm->number("forward_share"), 1);
  EXPECT_NEAR(gemm->number("forward_s"), 390e-6, 1e-12);
  EXPECT_EQ(kernels.tables[2].id, "kernels.phases");
  EXPECT_EQ(kernels.tables[2].table.rows.at(0).text("phase"), "forward");
  EXPECT_DOUBLE_EQ(kernels.tables[2].table.rows.at(1).number("time_share"), 1) << "of its phase";
  const View gap = make_view("gap", set);
  ASSERT_EQ(gap.tables.size(), 1U) << "no wall times of ops, so no table of them";
  const Row& before = gap.tables[0].table.rows.at(0);
  EXPECT_EQ(before.text("block"), "attention");
  // 100 us before the first gemm, 10 before the second: 55 us a kernel.
  EXPECT_DOUBLE_EQ(before.number("kernels"), 2);
  EXPECT_NEAR(before.number("idle_s"), 110e-6, 1e-12);
  EXPECT_NEAR(before.number("gap_s"), 55e-6, 1e-12);
  EXPECT_NEAR(before.number("idle_share"), 110.0 / 500, 1e-9);
  EXPECT_EQ(make_view("device", set).tables.size(), 3U);
  const View launches = make_view("launches", set);
  ASSERT_EQ(launches.tables.size(), 2U);
  const Row& row = launches.tables[0].table.rows.at(0);
  EXPECT_EQ(row.text("block"), "attention");
  EXPECT_DOUBLE_EQ(row.number("grid_max"), 132);
  EXPECT_DOUBLE_EQ(row.number("sm_share"), 0.5);
  EXPECT_DOUBLE_EQ(row.number("warps_mean"), 4);
  EXPECT_EQ(launches.tables[1].id, "launches.parts");
  const Row& part = launches.tables[1].table.rows.at(0);
  EXPECT_EQ(part.text("grid") + " of " + part.text("block"), "132x1x1 of 128x1x1");
  EXPECT_DOUBLE_EQ(part.number("blocks"), 132);
  EXPECT_EQ(part.number("launches"), row.number("launches")) << "one part";
  EXPECT_EQ(make_view("contention", set).tables.size(), 1U);
  set.runs[0].activities.clear();
  for (const char* name : {"kernels", "device", "launches", "contention", "gap"}) {
    EXPECT_TRUE(make_view(name, set).tables.empty()) << name;
  }
}

TEST(Glance, OfATracedRunAddsUpToTheStep) {
  const RunData run = loaded(device_run());
  const Glance glance = glance_of(run, why_of(run));
  ASSERT_FALSE(glance.idle.parts.empty());
  double sum_s = 0;
  double shares = 0;
  for (const GlancePart& part : glance.idle.parts) {
    sum_s += part.seconds;
    shares += part.share.value_or(0);
  }
  const DeviceTimes times = device_times(run);
  double span_s = 0;
  std::size_t steps = 0;
  for (const DeviceStep& step : times.steps) {
    if (step.kind != kTraced) continue;
    span_s += step.span_s();
    ++steps;
  }
  EXPECT_NEAR(sum_s, span_s / static_cast<double>(steps), 1e-12);
  EXPECT_NEAR(shares, 1, 1e-12);
  EXPECT_TRUE(std::ranges::any_of(glance.idle.parts,
                                  [](const GlancePart& part) { return part.name == "idle: host"; }));
}

std::vector<std::string> device_laws_broken(const std::function<void(DeviceRun&)>& change) {
  DeviceRun made = device_run();
  change(made);
  const record::TemporaryFolder folder;
  write_device(made, folder / "a.rooflm");
  std::vector<std::string> laws;
  for (const LawResult& result : verify(record::Reader(folder / "a.rooflm"))) {
    if (result.violated > 0 && result.law != "matmul_flop") laws.push_back(result.law);
  }
  return laws;
}

TEST(DeviceLaws, HoldForARecordWhoseNumbersFit) {
  EXPECT_EQ(device_laws_broken([](DeviceRun&) {}), std::vector<std::string>{});
}

TEST(DeviceLaws, NoticeAStepThatIsLongerThanItsParts) {
  EXPECT_EQ(device_laws_broken([](DeviceRun& made) { made.samples[0].seconds = 1100 * kUs; }),
            std::vector<std::string>{"exclusive, shared and idle time add up to the step"});
  EXPECT_EQ(device_laws_broken([](DeviceRun& made) { made.samples[1].seconds = 700 * kUs; }),
            std::vector<std::string>{"exclusive, shared and idle time add up to the device's own events"});
}

/// Events of the ops in `steps` replayed steps, as marks tell them, and a roof of 180 us for op 2, whose
/// kernel took 190 us beside others and 200 us alone.
void add_marks(DeviceRun& made, const std::vector<std::int64_t>& op2_us) {
  for (std::size_t i = 0; i < op2_us.size(); ++i) {
    const auto step = static_cast<std::int64_t>(100 + i);
    made.samples.push_back({.step = step, .phase = "step", .seconds = 1000 * kUs, .kind = "observed"});
    const std::array<std::int64_t, 3> us = {150, 350 - op2_us[i], op2_us[i]};
    for (std::int64_t op = 0; op < 3; ++op) {
      made.events.push_back(
          {.step = step, .op = op, .device_ns = 1000 * us.at(static_cast<std::size_t>(op))});
    }
  }
  made.predictions = {{.subject = "op:2", .quantity = "roof_s", .value = 180 * kUs, .unit = "s"}};
}

TEST(DeviceViews, AttentionTakenApartHasTheTimeOfItsKernelsBesideItsOps) {
  DeviceRun made = device_run();
  for (std::int64_t op = 0; op < 3; ++op) {
    made.events.push_back({.step = 2, .op = op, .device_ns = op == 0 ? 175'000 : 225'000});
  }
  made.samples.push_back({.step = 2, .phase = "step", .seconds = 1e-3, .kind = "observed"});
  const auto table_of_attention = [](const DeviceRun& run) {
    const RecordSet set{.files = {}, .runs = {loaded(run)}};
    return make_view("attention", set).tables.at(0).table;
  };
  const Row row = table_of_attention(made).rows.at(0);
  EXPECT_EQ(row.text("phase") + " " + row.text("part"), "forward qkv");
  EXPECT_DOUBLE_EQ(row.number("kernels"), 2) << "of the step in order; the stranger is nobody's";
  EXPECT_NEAR(row.number("kernel_s"), 350 * kUs, 1e-12);  // 150 and 200
  EXPECT_NEAR(row.number("device_s"), 400 * kUs, 1e-12);
  EXPECT_NEAR(row.number("kernel_share"), 0.875, 1e-9);
  // Where no step was traced people do not see the columns.
  made.activities.clear();
  const Table untraced = table_of_attention(made);
  EXPECT_EQ(*untraced.rows.at(0).find("kernels"), Cell());
  EXPECT_EQ(std::ranges::count(untraced.columns, "kernels", &Column::key), 0);
}

TEST(DeviceLaws, ALateMarkIsNoOpThatBeatsItsRoofUnlessMostAreLate) {
  const auto broken = [](const std::vector<std::int64_t>& op2_us) {
    return device_laws_broken([&](DeviceRun& made) { add_marks(made, op2_us); });
  };
  EXPECT_EQ(broken({200, 160, 200}), std::vector<std::string>{});
  EXPECT_EQ(broken({160}), std::vector<std::string>{});  // the kernel's own time says otherwise
  EXPECT_EQ(broken({160, 160, 200}), std::vector<std::string>{"no time beats its roof"});
}

TEST(DeviceLaws, NoticeKernelsThatBeatTheirRoof) {
  const auto faster = [](const std::vector<std::int64_t>& op2_us) {
    return device_laws_broken([&](DeviceRun& made) {
      add_marks(made, op2_us);
      made.predictions[0].value = 220 * kUs;
    });
  };
  EXPECT_EQ(faster({230, 230, 230}), std::vector<std::string>{"no op's kernels beat its roof"});
  EXPECT_EQ(faster({230}),
            (std::vector<std::string>{"no time beats its roof", "no op's kernels beat its roof"}));
}

TEST(DeviceLaws, NoticeAKernelThatIsNotInItsStepOrNotThere) {
  const auto outside = device_laws_broken([](DeviceRun& made) {
    for (record::Activity& activity : made.activities) {
      if (activity.name == kRange && activity.step == 0) activity.end_ns = 850'000;
    }
  });
  EXPECT_NE(std::ranges::find(outside, "kernels lie within their step"), outside.end());
  EXPECT_EQ(device_laws_broken([](DeviceRun& made) { made.ops[1].launches = 2; }),
            std::vector<std::string>{"kernels seen are those that the op launches"});
  // Where records were lost nobody knows.
  EXPECT_EQ(device_laws_broken([](DeviceRun& made) {
              made.ops[1].launches = 2;
              made.facts[0].value = 3;
            }),
            std::vector<std::string>{});
}

}  // namespace
}  // namespace rooflm::report
