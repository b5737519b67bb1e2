// Views of hardware counters: the hierarchy of memory, what was counted beside what shapes say, the roofline
// by measured bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/counted.h"
#include "report/counted_levels.h"
#include "report/kernels.h"
#include "report/summaries.h"
#include "report/view_def.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

std::string block_key(const TimedOp& op) { return op.block; }
std::string part_key(const TimedOp& op) { return op.part; }

/// Of the device that the run was on; the highest that was measured.
std::optional<double> dram_peak(const RunData& run) {
  for (const RoofLine& line : roof_lines(run).bandwidths) {
    if (line.name == "DRAM") return line.value;
  }
  return std::nullopt;
}

/// All counted ops, or the step of a processor, as one group.
std::optional<CountedGroup> whole_step(const RunData& run) {
  CountedGroup step{.phase = kStep, .name = "whole step"};
  step.counted = counted_step(run);
  if (step.counted.empty()) return std::nullopt;
  const auto counted = counted_ops(run);
  for (const TimedOp& timed : run.ops) {
    if (timed.op.phase == "setup") continue;
    const ExplainedFlop known = explained_flop(run, timed.op);
    const auto of_op = counted.find(timed.op.op);
    const auto flop = of_op == counted.end() ? std::nullopt : of_op->second.flop();
    step.matmul_flop += static_cast<double>(timed.op.matmul_flop);
    step.explained_flop += known.nearest(flop.value_or(known.least));
    step.bytes += static_cast<double>(timed.op.bytes_read + timed.op.bytes_written);
    // A CPU's counter cannot separate matmuls: it counts all arithmetic.
    if (step.counted.value("flop")) step.explained_flop += static_cast<double>(timed.op.elementwise_flop);
  }
  const auto time_s = phase_work(run, kStep).measured_s();
  step.device_s = time_s ? time_s : phase_median(run, kStep);
  return step;
}

/// The groups by `key` and, at last, the whole step.
std::vector<CountedGroup> groups_and_step(const RunData& run, std::string (*key)(const TimedOp&)) {
  auto groups = counted_groups(run, key);
  if (auto step = whole_step(run)) groups.push_back(std::move(*step));
  return groups;
}

Row counted_row(const CountedGroup& group) {
  Row row;
  row.set("phase", group.phase);
  row.set("part", group.name);
  row.set("ops", group.counted.ops());
  row.set("device_s", cell_of(group.device_s));
  return row;
}

Table hierarchy_table(const RunData& run) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", "block"},
                          {"load_instructions", "loads", Show::si},
                          {"store_instructions", "stores", Show::si},
                          {"load_bytes", "loaded", Show::bytes, "byte"},
                          {"store_bytes", "stored", Show::bytes, "byte"},
                          {"l1_sectors", "L1 sectors", Show::si},
                          {"l1_hit_share", "L1 hits", Show::percent},
                          {"l2_sectors", "L2 sectors", Show::si},
                          {"l2_hit_share", "L2 hits", Show::percent},
                          {"dram_read_bytes", "DRAM read", Show::bytes, "byte"},
                          {"dram_written_bytes", "written", Show::bytes, "byte"},
                          {"device_s", "time", Show::seconds, "s"},
                          {"dram_byte_per_s", "DRAM B/s", Show::si, "byte/s"},
                          {"dram_share", "of peak", Show::percent}},
              .rows = {},
              .notes = {}};
  const auto peak = dram_peak(run);
  for (const CountedGroup& group : groups_and_step(run, block_key)) {
    Row row = counted_row(group);
    for (const char* name :
         {"load_instructions", "store_instructions", "tma_instructions", "load_bytes", "store_bytes",
          "local_bytes", "shared_bytes", "l1_bytes", "l1_sectors", "l2_bytes", "l2_sectors",
          "dram_read_bytes", "dram_written_bytes", "cycles", "instructions", "cache_misses"}) {
      row.set(name, cell_of(group.counted.value(name)));
    }
    row.set("l1_hit_share", cell_of(group.counted.l1_hit_share()));
    row.set("l2_hit_share", cell_of(group.counted.l2_hit_share()));
    const auto rate = ratio_of(group.counted.dram_bytes(), group.device_s);
    row.set("dram_byte_per_s", cell_of(rate));
    row.set("dram_share", cell_of(ratio_of(rate, peak)));
    table.rows.push_back(std::move(row));
  }
  if (peak)
    table.notes.push_back(fmt::format("peak: {:.3g} B/s, the highest that a loop reached here", *peak));
  table.notes.emplace_back(
      "Loads and stores are those of threads. Hopper's tensor copies (TMA) bypass L1 and are counted from L2 "
      "on.");
  return table;
}

Table counted_work_table(const RunData& run) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", "part"},
                          {"matmul_flop", "FLOP by shapes", Show::si, "flop"},
                          {"explained_flop", "explained", Show::si, "flop"},
                          {"counted_flop", "counted", Show::si, "flop"},
                          {"flop_ratio", "counted/expl.", Show::fixed2},
                          {"bytes", "bytes by shapes", Show::bytes, "byte"},
                          {"dram_bytes", "DRAM counted", Show::bytes, "byte"},
                          {"bytes_ratio", "ratio", Show::fixed2},
                          {"likely", "likely why"}},
              .rows = {},
              .notes = {}};
  for (const CountedGroup& group : groups_and_step(run, part_key)) {
    Row row = counted_row(group);
    row.set("matmul_flop", group.matmul_flop);
    row.set("explained_flop", group.explained_flop);
    row.set("counted_flop", group.explained_flop > 0 ? cell_of(group.counted.flop()) : Cell());
    row.set("tensor_flop", cell_of(group.counted.tensor_flop()));
    row.set("core_flop", cell_of(group.counted.core_flop()));
    row.set("flop_ratio", cell_of(group.flop_ratio()));
    row.set("bytes", group.bytes);
    row.set("dram_bytes", cell_of(group.counted.dram_bytes()));
    row.set("bytes_ratio", cell_of(group.bytes_ratio()));
    row.set("local_bytes", cell_of(group.counted.value("local_bytes")));
    row.set("likely", group.note());
    table.rows.push_back(std::move(row));
  }
  table.notes.emplace_back(
      "FLOP of matmuls. Explained: FLOP by shapes; for causal flash attention the counted FLOP, if they lie "
      "between half of the score matrix and all of it, including padded heads and recomputed scores. Bytes "
      "by shapes are the least traffic if nothing stays in a cache.");
  return table;
}

/// "GH100; memory: 2 passes ..." and what known work counted.
void add_counter_notes(const RunData& run, Table& table) {
  if (const std::string passes = run.text("counter_passes"); !passes.empty()) {
    table.notes.push_back(fmt::format("{:.0f} passes of the same step, none of them timed: {}",
                                      run.number("counter_passes").value_or(0), passes));
  }
  if (const std::string missing = run.text("counters_missing"); !missing.empty()) {
    table.notes.push_back("no hardware counters: " + missing);
  }
}

Table known_work_table(const RunData& run) {
  Table table{.columns = {{"what", "known work"}, {"ratio", "counted/known", Show::plain}, {"text", "of"}},
              .rows = {},
              .notes = {}};
  for (const record::Fact& fact : run.facts) {
    constexpr std::string_view kPrefix = "counter_check_";
    if (!fact.key.starts_with(kPrefix)) continue;
    Row row;
    row.set("what", fact.key.substr(kPrefix.size()));
    row.set("ratio", cell_of(fact.value));
    row.set("text", fact.text);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table pipe_table(const RunData& run) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", "part"},
                          {"tensor_active", "tensor pipe", Show::percent},
                          {"sm_active", "SMs active", Show::percent},
                          {"warps_active", "warps", Show::percent},
                          {"instructions", "instructions", Show::si},
                          {"stall", "warps wait for"},
                          {"stall_share", "of their time", Show::percent}},
              .rows = {},
              .notes = {}};
  for (const CountedGroup& group : counted_groups(run, part_key)) {
    Row row = counted_row(group);
    for (const char* name : {"tensor_active", "sm_active", "warps_active"}) {
      row.set(name, cell_of(group.counted.share(name)));
    }
    row.set("instructions", cell_of(group.counted.value("instructions")));
    const auto [stall, share] = group.counted.top_stall();
    row.set("stall", stall.empty() ? Cell() : Cell(stall));
    row.set("stall_share", stall.empty() ? Cell() : Cell(share));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// What kernels of the device did by themselves, in the time that they took when they were traced.
Table device_kernel_table(const RunData& run) {
  Table table{.columns = {{"kernel", "kernel"},
                          {"ops", "launches"},
                          {"kernel_s", "in kernels", Show::seconds, "s"},
                          {"dram_bytes", "DRAM", Show::bytes, "byte"},
                          {"dram_byte_per_s", "DRAM B/s", Show::si, "byte/s"},
                          {"dram_share", "of peak", Show::percent},
                          {"l2_hit_share", "L2 hits", Show::percent},
                          {"flop_per_s", "FLOP/s", Show::si, "flop/s"},
                          {"tensor_active", "tensor pipe", Show::percent},
                          {"warps_active", "warps", Show::percent},
                          {"stall", "warps wait for"}},
              .rows = {},
              .notes = {"Ops that were a single kernel when traced: counters cover the op's range, the time "
                        "is that of the kernel, per execution."}};
  const auto peak = dram_peak(run);
  for (const CountedGroup& group : counted_kernels(run)) {
    Row row;
    row.set("kernel", group.name);
    row.set("ops", group.counted.ops());
    row.set("kernel_s", cell_of(group.device_s));
    row.set("dram_bytes", cell_of(group.counted.dram_bytes()));
    const auto rate = ratio_of(group.counted.dram_bytes(), group.device_s);
    row.set("dram_byte_per_s", cell_of(rate));
    row.set("dram_share", cell_of(ratio_of(rate, peak)));
    row.set("l2_hit_share", cell_of(group.counted.l2_hit_share()));
    row.set("flop_per_s", cell_of(ratio_of(group.counted.all_flop(), group.device_s)));
    row.set("tensor_active", cell_of(group.counted.share("tensor_active")));
    row.set("warps_active", cell_of(group.counted.share("warps_active")));
    const std::string stall = group.counted.top_stall().first;
    row.set("stall", stall.empty() ? Cell() : Cell(stall));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string kernel_key(const TimedOp& op) { return kernel_name(op.op); }

void add_counters(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table hierarchy = hierarchy_table(run);
  if (hierarchy.rows.empty() && !run.text("counters_missing").empty()) {
    Row row;
    row.set("phase", kStep);
    row.set("part", "not counted");
    hierarchy.rows.push_back(std::move(row));
  }
  add_counter_notes(run, hierarchy);
  view.add("counters", "Memory hierarchy", std::move(hierarchy));
  view.add("counters.work", "Counted against shapes", counted_work_table(run));
  view.add("counters.levels", "Intensity at each level", level_table(groups_and_step(run, part_key), "part"));
  view.add("counters.kernels", "The same by kernel", level_table(counted_groups(run, kernel_key), "kernel"));
  view.add("counters.device_kernels", "Kernels of the device, counted", device_kernel_table(run));
  view.add("counters.pipes", "Pipes, warps and stalls", pipe_table(run));
  view.add("counters.checks", "Known work, counted", known_work_table(run));
  view.add(level_chart(run, counted_groups(run, part_key)));
}

constexpr std::array kCountersViews = {ViewDef{
    .place = 62,
    .info = {.name = "counters",
             .title = "Hardware counters",
             .note = "Hardware counters of one step. Times are those of observed steps: counting slows steps "
                     "down, so counted steps are never timed.",
             .needs =
                 "hardware counters (rooflm profile --device cuda --counters; a processor that has some)",
             .is_on_page = false},
    .of_run = add_counters,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_counters() { return kCountersViews; }

}  // namespace rooflm::report
