// Views of hardware counters: the hierarchy of memory, what was counted beside what shapes say, the roofline
// by measured bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/counted.h"
#include "report/model/counted_levels.h"
#include "report/model/kernels.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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

/// The column of a counter; `title` "": of CSV and JSON only.
TypedColumn<CountedGroup> counter(const char* name, const char* title = "", Show show = Show::plain) {
  const auto value = [name](const CountedGroup& group) { return group.counted.value(name); };
  if (std::string_view(title).empty()) return {name, value};
  return {name, title, value, show};
}
TypedColumn<CountedGroup> counted_share(const char* name, const char* title) {
  return {name, title, [name](const CountedGroup& group) { return group.counted.share(name); },
          Show::percent};
}

/// A group with the highest rate of DRAM here.
struct PeakedGroup {
  CountedGroup group;
  std::optional<double> peak;
  [[nodiscard]] std::optional<double> dram_byte_per_s() const {
    return ratio_of(group.counted.dram_bytes(), group.device_s);
  }
  [[nodiscard]] std::optional<double> dram_share() const { return ratio_of(dram_byte_per_s(), peak); }
};

std::vector<PeakedGroup> with_peak(std::vector<CountedGroup> groups, const std::optional<double>& peak) {
  std::vector<PeakedGroup> all;
  for (CountedGroup& group : groups) all.push_back({.group = std::move(group), .peak = peak});
  return all;
}

const TypedColumns<PeakedGroup>& hierarchy_columns() {
  static const TypedColumns<CountedGroup> counted = {
      {"phase", "phase", &CountedGroup::phase},
      {"part", "block", &CountedGroup::name},
      {"ops", [](const CountedGroup& group) { return group.counted.ops(); }},
      counter("load_instructions", "loads", Show::si),
      counter("store_instructions", "stores", Show::si),
      counter("load_bytes", "loaded", Show::bytes),
      counter("store_bytes", "stored", Show::bytes),
      counter("tma_instructions"),
      counter("local_bytes"),
      counter("shared_bytes"),
      counter("l1_bytes"),
      counter("l1_sectors", "L1 sectors", Show::si),
      {"l1_hit_share", "L1 hits", [](const CountedGroup& group) { return group.counted.l1_hit_share(); },
       Show::percent},
      counter("l2_bytes"),
      counter("l2_sectors", "L2 sectors", Show::si),
      {"l2_hit_share", "L2 hits", [](const CountedGroup& group) { return group.counted.l2_hit_share(); },
       Show::percent},
      counter("dram_read_bytes", "DRAM read", Show::bytes),
      counter("dram_written_bytes", "written", Show::bytes),
      counter("cycles"),
      counter("instructions"),
      counter("cache_misses"),
      {"device_s", "time", &CountedGroup::device_s, Show::seconds}};
  static const TypedColumns<PeakedGroup> columns =
      TypedColumns<PeakedGroup>({})
          .add(counted, &PeakedGroup::group)
          .add({"dram_byte_per_s", "DRAM B/s", &PeakedGroup::dram_byte_per_s, Show::si, "byte/s"})
          .add({"dram_share", "of peak", &PeakedGroup::dram_share, Show::percent});
  return columns;
}

Table hierarchy_table(const RunData& run) {
  const auto peak = dram_peak(run);
  std::vector<CountedGroup> groups = groups_and_step(run, block_key);
  if (groups.empty() && !run.text("counters_missing").empty())
    groups.push_back({.phase = kStep, .name = "not counted"});
  Table table = hierarchy_columns().table(with_peak(std::move(groups), peak));
  if (peak)
    table.notes.push_back(fmt::format("peak: {:.3g} B/s, the highest that a loop reached here", *peak));
  table.notes.emplace_back(
      "Loads and stores are those of threads. Hopper's tensor copies (TMA) bypass L1 and are counted from L2 "
      "on.");
  return table;
}

const TypedColumns<CountedGroup>& counted_work_columns() {
  static const TypedColumns<CountedGroup> columns = {
      {"phase", "phase", &CountedGroup::phase},
      {"part", "part", &CountedGroup::name},
      {"ops", [](const CountedGroup& group) { return group.counted.ops(); }},
      {"device_s", &CountedGroup::device_s},
      {"matmul_flop", "FLOP by shapes", &CountedGroup::matmul_flop, Show::si, "flop"},
      {"explained_flop", "explained", &CountedGroup::explained_flop, Show::si, "flop"},
      {"counted_flop", "counted",
       [](const CountedGroup& group) {
         return group.explained_flop > 0 ? group.counted.flop() : std::nullopt;
       },
       Show::si, "flop"},
      {"tensor_flop", [](const CountedGroup& group) { return group.counted.tensor_flop(); }},
      {"core_flop", [](const CountedGroup& group) { return group.counted.core_flop(); }},
      {"flop_ratio", "counted/expl.", &CountedGroup::flop_ratio, Show::fixed2},
      {"bytes", "bytes by shapes", &CountedGroup::bytes, Show::bytes},
      {"dram_bytes", "DRAM counted", [](const CountedGroup& group) { return group.counted.dram_bytes(); },
       Show::bytes},
      {"bytes_ratio", "ratio", &CountedGroup::bytes_ratio, Show::fixed2},
      counter("local_bytes"),
      {"likely", "likely why", &CountedGroup::note}};
  return columns;
}

Table counted_work_table(const RunData& run) {
  Table table = counted_work_columns().table(groups_and_step(run, part_key));
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

/// A kernel whose work is known, counted.
struct KnownWork {
  std::string what;
  std::optional<double> ratio;
  std::string text;
};

const TypedColumns<KnownWork>& known_work_columns() {
  static const TypedColumns<KnownWork> columns = {{"what", "known work", &KnownWork::what},
                                                  {"ratio", "counted/known", &KnownWork::ratio},
                                                  {"text", "of", &KnownWork::text}};
  return columns;
}

std::vector<KnownWork> known_works(const RunData& run) {
  constexpr std::string_view kPrefix = "counter_check_";
  std::vector<KnownWork> works;
  for (const record::Fact& fact : run.facts) {
    if (fact.key.starts_with(kPrefix))
      works.push_back({.what = fact.key.substr(kPrefix.size()), .ratio = fact.value, .text = fact.text});
  }
  return works;
}

const TypedColumns<CountedGroup>& pipe_columns() {
  static const TypedColumns<CountedGroup> columns = {
      {"phase", "phase", &CountedGroup::phase},
      {"part", "part", &CountedGroup::name},
      {"ops", [](const CountedGroup& group) { return group.counted.ops(); }},
      {"device_s", &CountedGroup::device_s},
      counted_share("tensor_active", "tensor pipe"),
      counted_share("sm_active", "SMs active"),
      counted_share("warps_active", "warps"),
      counter("instructions", "instructions", Show::si),
      {"stall", "warps wait for",
       [](const CountedGroup& group) { return known_text(group.counted.top_stall().first); }},
      {"stall_share", "of their time",
       [](const CountedGroup& group) {
         const auto [stall, share] = group.counted.top_stall();
         return stall.empty() ? std::nullopt : std::optional(share);
       },
       Show::percent}};
  return columns;
}

/// What kernels of the device did by themselves, in the time that they took when they were traced.
const TypedColumns<PeakedGroup>& device_kernel_columns() {
  static const TypedColumns<CountedGroup> before = {
      {"kernel", "kernel", &CountedGroup::name},
      {"ops", "launches", [](const CountedGroup& group) { return group.counted.ops(); }},
      {"kernel_s", "in kernels", &CountedGroup::device_s, Show::seconds},
      {"dram_bytes", "DRAM", [](const CountedGroup& group) { return group.counted.dram_bytes(); },
       Show::bytes}};
  static const TypedColumns<CountedGroup> after = {
      {"l2_hit_share", "L2 hits", [](const CountedGroup& group) { return group.counted.l2_hit_share(); },
       Show::percent},
      {"flop_per_s", "FLOP/s",
       [](const CountedGroup& group) { return ratio_of(group.counted.all_flop(), group.device_s); }, Show::si,
       "flop/s"},
      counted_share("tensor_active", "tensor pipe"),
      counted_share("warps_active", "warps"),
      {"stall", "warps wait for",
       [](const CountedGroup& group) { return known_text(group.counted.top_stall().first); }}};
  static const TypedColumns<PeakedGroup> columns =
      TypedColumns<PeakedGroup>({})
          .add(before, &PeakedGroup::group)
          .add({"dram_byte_per_s", "DRAM B/s", &PeakedGroup::dram_byte_per_s, Show::si, "byte/s"})
          .add({"dram_share", "of peak", &PeakedGroup::dram_share, Show::percent})
          .add(after, &PeakedGroup::group);
  return columns;
}

Table device_kernel_table(const RunData& run) {
  Table table = device_kernel_columns().table(with_peak(counted_kernels(run), dram_peak(run)));
  table.notes.emplace_back(
      "Ops that were a single kernel when traced: counters cover the op's range, the time "
      "is that of the kernel, per execution.");
  return table;
}

std::string kernel_key(const TimedOp& op) { return kernel_name(op.op); }

void add_counters(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table hierarchy = hierarchy_table(run);
  add_counter_notes(run, hierarchy);
  view.add("counters", "Memory hierarchy", std::move(hierarchy));
  view.add("counters.work", "Counted against shapes", counted_work_table(run));
  view.add("counters.levels", "Intensity at each level", level_table(groups_and_step(run, part_key), "part"));
  view.add("counters.kernels", "The same by kernel", level_table(counted_groups(run, kernel_key), "kernel"));
  view.add("counters.device_kernels", "Kernels of the device, counted", device_kernel_table(run));
  view.add("counters.pipes", "Pipes, warps and stalls", pipe_columns().table(counted_groups(run, part_key)));
  view.add("counters.checks", "Known work, counted", known_work_columns().table(known_works(run)));
  view.add(level_chart(run, counted_groups(run, part_key)));
}

constexpr std::array kCountersViews = {ViewDef{
    .place = 62,
    .info = {.name = "counters",
             .title = "Hardware counters",
             .note = "Hardware counters of one step. Times are those of observed steps: counting slows steps "
                     "down, so counted steps are never timed.",
             .needs =
                 "hardware counters (rooflm profile --device cuda --counters; a processor that has some)"},
    .of_run = add_counters,
    .columns = [] {
      return columns_of(hierarchy_columns(), counted_work_columns(), level_columns(),
                        level_columns().with_title("part", "kernel"), pipe_columns(), device_kernel_columns(),
                        known_work_columns());
    }}};

}  // namespace

std::span<const ViewDef> views_counters() { return kCountersViews; }

}  // namespace rooflm::report
