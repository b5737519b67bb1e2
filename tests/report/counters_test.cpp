// Views and laws of hardware counters, on a step whose counts can be worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"
#include "report/findings/why.h"
#include "report/model/counted.h"
#include "report/model/work_figures.h"
#include "report/verify/verify.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"

namespace rooflm::report {
namespace {

/// A product, causal flash attention forward and backward, and an update; 1 ms each, of two observed steps.
struct CountedStepSpec {
  double product_flop = 8e9;  ///< counted; 8e9 by its shapes
  double product_local_bytes = 0;
  double update_bytes = 2e6;  ///< counted; 2e6 by its shapes
  bool with_gauges = true;
  int heads = 1;                  ///< of 64 numbers together
  std::int64_t passes = 2;        ///< as the fact says; two steps were counted
  bool with_kernel = false;       ///< the update was one kernel alone
  std::int64_t op_of_kernel = 3;  ///< as the activity says
};

record::Counter counter(std::int64_t op, const char* phase, const char* name, double value,
                        const char* unit) {
  return {
      .phase = phase, .scope = "x", .name = name, .value = value, .unit = unit, .source = "cupti", .op = op};
}

void add_op(std::vector<record::Op>& ops, const char* kind, const char* work, const char* phase,
            const char* scope, std::int64_t flop, std::int64_t bytes) {
  ops.push_back({.op = static_cast<std::int64_t>(ops.size()),
                 .kind = kind,
                 .op_class = work,
                 .kernel = kind,
                 .name = scope,
                 .phase = phase,
                 .scope = scope,
                 .dtype = "bf16",
                 .matmul_flop = flop,
                 .bytes_read = bytes / 2,
                 .bytes_written = bytes / 2});
}

void add_counts(std::vector<record::Counter>& rows, std::int64_t op, const char* phase, double flop,
                double dram, double share) {
  const auto add = [&](const char* name, double value, const char* unit) {
    rows.push_back(counter(op, phase, name, value, unit));
  };
  add("tensor_bf16_flop", flop, "flop");
  add("tensor_tf32_flop", 0, "flop");
  add("fp32_flop", 1e6, "flop");
  add("dram_read_bytes", dram / 2, "B");
  add("dram_written_bytes", dram / 2, "B");
  add("l2_bytes", 4 * dram, "B");
  add("l2_sectors", 4 * dram / 32, "sectors");
  add("l2_hit_sectors", 3 * dram / 32, "sectors");
  add("l1_bytes", 8 * dram, "B");
  add("l1_sectors", 1000, "sectors");
  add("l1_hit_sectors", 250, "sectors");
  add("cycles", 1e6, "cycles");
  add("tensor_active", share, "share");
  add("warp_cycles", 100, "warp cycles");
  add("stall_long_scoreboard", 40, "warp cycles");
  add("stall_barrier", 10, "warp cycles");
}

void write_counted(const std::filesystem::path& path, const CountedStepSpec& spec) {
  record::Writer writer(path, "profile --counters");
  for (const auto& [what, level, dtype, rate, unit] :
       {std::tuple{"matmul", "", "bf16", 16e12, "flop/s"}, std::tuple{"read", "DRAM", "", 4e9, "byte/s"}}) {
    writer.add(record::Ceiling{.device = "cuda:0",
                               .what = what,
                               .level = level,
                               .dtype = dtype,
                               .value = rate,
                               .unit = unit,
                               .ci_low = rate,
                               .ci_high = rate,
                               .samples = 1});
  }
  record::Run run{.label = "counted", .status = "success"};
  run.config.set("device", "cuda:0");
  run.config.set("dtype", "bf16");
  run.config.set("seq", 256);
  run.config.set("heads", spec.heads);
  run.config.set("d_model", 64);
  const std::int64_t id = writer.begin_run(run);
  std::vector<record::Op> ops;
  add_op(ops, "matmul", "matmul", "forward", "h.0/attention/qkv", 8'000'000'000, 1'000'000);
  add_op(ops, "flash_attention", "attention", "forward", "h.0/attention/flash", 4'000'000, 1'000'000);
  add_op(ops, "flash_attention_backward", "attention", "backward", "h.0/attention/flash", 8'000'000,
         1'000'000);
  add_op(ops, "adamw", "optimizer", "optimizer", "optimizer", 0, 2'000'000);
  writer.add(id, ops);
  std::vector<record::Counter> counters;
  add_counts(counters, 0, "forward", spec.product_flop, 1e6, 0.9);
  counters.push_back(counter(0, "forward", "local_bytes", spec.product_local_bytes, "B"));
  add_counts(counters, 1, "forward", 4e6 * 0.75, 1e6, 0.1);  // two tiles of 128: 3 of 4
  add_counts(counters, 2, "backward", 8e6 * 0.75 * 5 / 4, 1e6, 0.1);
  add_counts(counters, 3, "optimizer", 0, spec.update_bytes, 0);
  if (spec.with_kernel) {
    for (record::Counter& of_update : counters) {
      if (of_update.op == 3) of_update.activity = 7;
    }
    writer.add(id, std::vector<record::Lane>{{.lane = 0, .kind = "device", .device = "cuda:0", .stream = 7}});
    writer.add(
        id,
        std::vector<record::ActivityName>{
            {.name = 0, .kind = "kernel", .text = "void rooflm::(anonymous namespace)::adamw<float>(int)"}});
    writer.add(id, std::vector<record::Activity>{{.id = 7,
                                                  .name = 0,
                                                  .lane = 0,
                                                  .start_ns = 1000,
                                                  .end_ns = 501'000,
                                                  .step = 0,
                                                  .op = spec.op_of_kernel}});
  }
  writer.add(id, counters);
  std::vector<record::Sample> samples;
  std::vector<record::Event> events;
  for (std::int64_t step = 0; step < 2; ++step) {
    for (const auto& [phase, seconds] :
         {std::pair{"forward", 2e-3}, {"backward", 1e-3}, {"optimizer", 1e-3}, {"step", 4e-3}}) {
      samples.push_back({.step = step, .phase = phase, .seconds = seconds, .kind = "observed"});
    }
    for (std::int64_t op = 0; op < 4; ++op)
      events.push_back({.step = step, .op = op, .device_ns = 1'000'000});
    samples.push_back({.step = 2 + step, .phase = "step", .seconds = 1, .kind = "counted"});
  }
  writer.add(id, samples);
  writer.add(id, events);
  if (spec.with_gauges) {
    writer.add(id,
               std::vector<record::Gauge>{
                   {.device = "cuda:0", .name = "sm_clock_hz", .time_ns = 1, .value = 1.5e9, .unit = "Hz"},
                   {.device = "cuda:0", .name = "power_w", .time_ns = 1, .value = 600, .unit = "W"},
                   {.device = "cuda:0", .name = "power_w", .time_ns = 2, .value = 700, .unit = "W"}});
    writer.add(id, record::Fact{.key = "sm_clock_max_hz", .value = 2e9, .unit = "Hz"});
    writer.add(id, record::Fact{.key = "energy_j", .value = 5, .unit = "J"});
  }
  writer.add(
      id,
      record::Fact{.key = "counter_passes", .value = static_cast<double>(spec.passes), .text = "memory: 2"});
  writer.add(id, record::Fact{.key = "counter_check_copy_bytes", .value = 1.001, .text = "a copy"});
  writer.end_run(id, "success");
  writer.finish();
}

RunData counted_run(const CountedStepSpec& spec = {}) {
  const record::TemporaryFolder folder;
  const std::array files = {folder / "a.rooflm"};
  write_counted(files[0], spec);
  return load(files).runs.at(0);
}

View view_of(const std::string& name, const CountedStepSpec& spec = {}) {
  const record::TemporaryFolder folder;
  const std::array files = {folder / "a.rooflm"};
  write_counted(files[0], spec);
  return make_view(name, load(files), {});
}

const Table& table_of(const View& view, const std::string& id) {
  for (const ViewTable& table : view.tables) {
    if (table.id == id) return table.table;
  }
  static const Table kNone;
  ADD_FAILURE() << "no table " << id;
  return kNone;
}

const CountedGroup& group_named(const std::vector<CountedGroup>& groups, const std::string& phase,
                                const std::string& name) {
  for (const CountedGroup& group : groups) {
    if (group.phase == phase && group.name == name) return group;
  }
  ADD_FAILURE() << phase << " " << name;
  return groups.front();
}

std::vector<CountedGroup> parts_counted(const RunData& run) {
  return counted_groups(run, [](const TimedOp& op) { return op.part; });
}

TEST(Counted, AttentionIsExplainedByTheMask) {
  const auto parts = parts_counted(counted_run());
  ASSERT_EQ(parts.size(), 4U);
  const CountedGroup& forward = group_named(parts, "forward", "attention/flash");
  EXPECT_DOUBLE_EQ(forward.explained_flop, 3e6) << "as counted: tiles of 128 are three quarters of 256 x 256";
  EXPECT_DOUBLE_EQ(forward.flop_ratio().value_or(0), 1);
  const CountedGroup& backward = group_named(parts, "backward", "attention/flash");
  EXPECT_DOUBLE_EQ(backward.explained_flop, 7.5e6);
  EXPECT_DOUBLE_EQ(backward.flop_ratio().value_or(0), 1);
  EXPECT_EQ(forward.note(), "computes 75 % of the score matrix, 50 % is needed");
  EXPECT_EQ(forward.device_s, 1e-3) << "of observed steps, not of counted ones";
}

TEST(Counted, AttentionIsExplainedBetweenBounds) {
  const RunData run = counted_run({.heads = 2});
  record::Op op = run.ops.at(1).op;
  const ExplainedFlop forward = explained_flop(run, op);
  EXPECT_DOUBLE_EQ(forward.least, 2e6);
  EXPECT_DOUBLE_EQ(forward.most, 8e6) << "heads of 32 are computed as 64";
  EXPECT_TRUE(forward.is_padded);
  EXPECT_DOUBLE_EQ(forward.nearest(1e6), 2e6);
  EXPECT_DOUBLE_EQ(forward.nearest(9e6), 8e6);
  const ExplainedFlop backward = explained_flop(run, run.ops.at(2).op);
  EXPECT_DOUBLE_EQ(backward.least, 5e6) << "half of five products";
  EXPECT_DOUBLE_EQ(backward.most, 28e6) << "seven whole ones";
  op.kind = "matmul";
  EXPECT_DOUBLE_EQ(explained_flop(run, op).least, 4e6);
  EXPECT_DOUBLE_EQ(explained_flop(run, op).most, 4e6);
}

TEST(Counted, RatiosOutOfToleranceNameTheirCause) {
  const auto qkv = [](const CountedStepSpec& spec) {
    return group_named(parts_counted(counted_run(spec)), "forward", "attention/qkv");
  };
  EXPECT_NE(qkv({.product_flop = 8.4e9}).note().find("padding"), std::string::npos);
  EXPECT_NE(qkv({.product_flop = 7e9}).note().find("fewer FLOP"), std::string::npos);
  const auto update = [](double bytes) {
    return group_named(parts_counted(counted_run({.update_bytes = bytes})), "optimizer", "optimizer");
  };
  EXPECT_NE(update(4e6).note().find("more bytes"), std::string::npos);
  EXPECT_NE(update(1e6).note().find("L2"), std::string::npos);
  EXPECT_EQ(update(2.02e6).note(), "");
}

TEST(Counted, SharesAreWeighedByCyclesAndRatesByTime) {
  const Counted step = counted_step(counted_run());
  EXPECT_EQ(step.ops(), 4);
  EXPECT_DOUBLE_EQ(step.share("tensor_active").value_or(0), (0.9 + 0.1 + 0.1) / 4);
  EXPECT_DOUBLE_EQ(step.l1_hit_share().value_or(0), 0.25);
  EXPECT_DOUBLE_EQ(step.l2_hit_share().value_or(0), 0.75);
  EXPECT_EQ(step.top_stall().first, "long_scoreboard");
  EXPECT_DOUBLE_EQ(step.top_stall().second, 0.4);
  EXPECT_FALSE(step.value("fp64_flop")) << "was not counted";
}

TEST(CounterViews, HierarchyWorkLevelsAndChecks) {
  const View view = view_of("counters");
  const Table& hierarchy = table_of(view, "counters");
  ASSERT_EQ(hierarchy.rows.size(), 4U) << "attention twice, the optimizer, the step";
  const Row& step = hierarchy.rows.back();
  EXPECT_DOUBLE_EQ(step.number("dram_read_bytes"), 2.5e6);
  EXPECT_DOUBLE_EQ(step.number("dram_byte_per_s"), 5e6 / 4e-3);
  EXPECT_DOUBLE_EQ(step.number("dram_share"), 5e6 / 4e-3 / 4e9);
  const Table& work = table_of(view, "counters.work");
  EXPECT_DOUBLE_EQ(work.rows.back().number("flop_ratio"), 1);
  EXPECT_EQ(table_of(view, "counters.checks").rows.at(0).number("ratio"), 1.001);
  EXPECT_DOUBLE_EQ(table_of(view, "counters.levels").rows.at(0).number("L1_intensity"), (8e9 + 1e6) / 8e6);
  EXPECT_EQ(table_of(view, "counters.kernels").rows.at(1).text("part"), "flash_attention");
  EXPECT_EQ(table_of(view, "counters.pipes").rows.at(0).text("stall"), "long_scoreboard");
  ASSERT_EQ(view.charts.size(), 1U);
}

TEST(CounterViews, AnOpThatWasOneKernelIsCountedAsThatKernelInItsOwnTime) {
  const CountedStepSpec spec{.with_kernel = true};
  const View view = view_of("counters", spec);
  const Table& kernels = table_of(view, "counters.device_kernels");
  ASSERT_EQ(kernels.rows.size(), 1U);
  EXPECT_EQ(kernels.rows[0].text("kernel"), "adamw");
  EXPECT_DOUBLE_EQ(kernels.rows[0].number("kernel_s"), 0.5e-3);
  EXPECT_DOUBLE_EQ(kernels.rows[0].number("dram_byte_per_s"), kernels.rows[0].number("dram_bytes") / 0.5e-3);
  EXPECT_EQ(table_of(view, "counters").rows.size(), 4U) << "they still are the op's";
  EXPECT_TRUE(std::ranges::none_of(view_of("counters").tables,
                                   [](const auto& table) { return table.id == "counters.device_kernels"; }));
}

TEST(CounterViews, AProcessorIsCountedAsAWhole) {
  const record::TemporaryFolder folder;
  const std::array files = {folder / "a.rooflm"};
  {
    record::Writer writer(files[0], "profile");
    record::Run run{.label = "cpu", .status = "success"};
    run.config.set("device", "cpu");
    const std::int64_t id = writer.begin_run(run);
    std::vector<record::Op> ops;
    add_op(ops, "matmul", "matmul", "forward", "h.0/attention/qkv", 1000, 100);
    writer.add(id, ops);
    const auto whole = [](const char* name, double value, const char* unit, const char* source) {
      return record::Counter{.phase = "step", .name = name, .value = value, .unit = unit, .source = source};
    };
    writer.add(id, std::vector<record::Counter>{whole("flop", 1100, "flop", "perf_event"),
                                                whole("dram_read_bytes", 60, "B", "perf_event"),
                                                whole("dram_written_bytes", 40, "B", "perf_event"),
                                                whole("flop", 1000, "flop", "shapes")});
    writer.add(id, std::vector<record::Sample>{{.step = 0, .phase = "step", .seconds = 0.5}});
    writer.end_run(id, "success");
    writer.finish();
  }
  const View view = make_view("counters", load(files), {});
  const Table& work = table_of(view, "counters.work");
  ASSERT_EQ(work.rows.size(), 1U);
  EXPECT_DOUBLE_EQ(work.rows[0].number("flop_ratio"), 1.1);
  EXPECT_DOUBLE_EQ(work.rows[0].number("bytes_ratio"), 1);
  EXPECT_DOUBLE_EQ(table_of(view, "counters").rows.at(0).number("dram_byte_per_s"), 200);
}

TEST(CounterViews, PowerHasEnergyAndGauges) {
  const View view = view_of("power");
  EXPECT_EQ(table_of(view, "power").rows.at(0).number("value"), 5);
  const Table& gauges = table_of(view, "power.gauges");
  ASSERT_EQ(gauges.rows.size(), 2U);
  EXPECT_EQ(gauges.rows[0].number("median"), 650);
  EXPECT_EQ(gauges.rows[1].number("median"), 1500) << "clocks are in MHz";
  EXPECT_EQ(gauges.rows[1].text("unit"), "MHz");
  EXPECT_TRUE(view_of("power", {.with_gauges = false}).tables.empty());
}

TEST(Why, TimeIsTakenApartWithoutRest) {
  const auto parts = why_of(counted_run());
  ASSERT_EQ(parts.size(), 4U);
  for (const Why& part : parts) {
    double sum_s = 0;
    for (const double seconds : part.cause_s) sum_s += seconds;
    EXPECT_NEAR(sum_s, part.time_s, 1e-12) << part.name;
    EXPECT_TRUE(part.is_counted);
    EXPECT_FALSE(part.has_launch) << "nothing was traced";
  }
  EXPECT_EQ(parts[0].name, "attention/qkv");
  EXPECT_DOUBLE_EQ(parts[0].of(Cause::tensor), 0.5e-3);
  EXPECT_DOUBLE_EQ(parts[0].of(Cause::clock), 0.25e-3) << "three quarters of the highest clock";
  EXPECT_DOUBLE_EQ(parts[0].of(Cause::latency), 0.25e-3);
  EXPECT_EQ(parts[0].bound(), Cause::tensor);
  EXPECT_EQ(parts[0].stall, "long scoreboard 40 %");
  EXPECT_EQ(parts[3].name, "optimizer");
  EXPECT_DOUBLE_EQ(parts[3].of(Cause::dram), 0.5e-3);
  EXPECT_DOUBLE_EQ(parts[3].of(Cause::clock), 0) << "memory has a clock of its own";
}

TEST(Why, WhatNobodyCountedIsExplainedByItsBytes) {
  RunData run = counted_run();
  run.counters.clear();
  run.ops.at(3).roof_s = 1e-9;
  run.ops.at(3).bound = "DRAM";
  const auto parts = why_of(run);
  ASSERT_EQ(parts.size(), 1U) << "of the others nothing is known";
  EXPECT_FALSE(parts[0].is_counted);
  const double moved_s = dram_s(run, 2'000'000).value_or(0);
  EXPECT_GT(moved_s, 1e-9) << "the roof lets caches hold nearly all of it";
  EXPECT_DOUBLE_EQ(parts[0].of(Cause::dram), moved_s);
  EXPECT_NEAR(parts[0].of(Cause::latency), parts[0].time_s - moved_s, 1e-12);
}

TEST(Why, WhatIsNotKnownIsNotZero) {
  const View view = view_of("why", {.with_gauges = false});
  const Table& parts = table_of(view, "why");
  const Cell* launch = parts.rows.at(0).find("launch_s");
  const Cell* clock = parts.rows.at(0).find("clock_s");
  ASSERT_TRUE(launch != nullptr && clock != nullptr);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*launch));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*clock));
  EXPECT_EQ(table_of(view, "why.causes").rows.size(), kCauses - 1) << "all but communication, of one rank";
}

std::vector<std::string> broken_laws(const CountedStepSpec& spec) {
  const record::TemporaryFolder folder;
  write_counted(folder / "a.rooflm", spec);
  std::vector<std::string> broken;
  for (const LawResult& law : verify(record::Reader(folder / "a.rooflm"))) {
    if (law.violated > 0) broken.push_back(law.law);
  }
  return broken;
}

TEST(CounterLaws, HoldForWhatFitsAndBreakForWhatDoesNot) {
  EXPECT_EQ(broken_laws({}), std::vector<std::string>{});
  EXPECT_EQ(broken_laws({.with_kernel = true, .op_of_kernel = 2}),
            std::vector<std::string>{"counted kernels belong to the op that was counted"});
  EXPECT_EQ(broken_laws({.with_kernel = true}), std::vector<std::string>{});
  EXPECT_EQ(broken_laws({.product_flop = 8.4e9}), std::vector<std::string>{}) << "tiles may be padded";
  EXPECT_EQ(broken_laws({.product_flop = 7e9}), std::vector<std::string>{"matmuls have counted FLOP"});
  EXPECT_EQ(broken_laws({.passes = 5}),
            std::vector<std::string>{"counted steps are the passes of the counters"});
}

}  // namespace
}  // namespace rooflm::report
