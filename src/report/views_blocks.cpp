// Views of the blocks of a step: time, classes of ops, launch gap.
#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/summaries.h"
#include "report/traced_kernels.h"
#include "report/view_def.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

std::vector<Column> block_columns(const char* title) {
  return {{"phase", "phase"},
          {"block", title},
          {"ops", "ops"},
          {"launches", "launches"},
          {"device_s", "device", Show::seconds, "s"},
          {"wall_s", "wall", Show::seconds, "s"},
          {"time_share", "of kernels", Show::percent},
          {"flop", "FLOP", Show::si, "flop"},
          {"bytes", "bytes", Show::bytes, "byte"},
          {"roof_s", "roof", Show::seconds, "s"},
          {"share", "share", Show::percent},
          {"bound", "bound"}};
}

Row block_row(const Group& group) {
  const Work& work = group.work;
  Row row;
  row.set("phase", group.phase);
  row.set("block", group.name);
  row.set("ops", work.ops);
  row.set("launches", work.launches);
  row.set("device_s", cell_of(work.measured_s()));
  row.set("wall_s", cell_of(work.shown_wall_s()));
  row.set("time_share", cell_of(group.time_share));
  const bool is_priced = work.is_priced();
  row.set("flop", is_priced ? Cell(work.matmul_flop + work.elementwise_flop) : Cell());
  row.set("bytes", is_priced ? Cell(work.bytes) : Cell());
  row.set("roof_s", cell_of(work.roof_s));
  row.set("share", cell_of(work_figures(work).roof_share));
  row.set("bound", work.bound);
  return row;
}

/// Blocks stacked, one column per phase.
Chart block_chart(const std::vector<Group>& blocks) {
  Chart chart{.id = "blocks",
              .title = "Blocks by phase",
              .note = "Time in kernels, summed over layers.",
              .kind = ChartKind::stacked,
              .x = {.title = "phase"},
              .y = {.title = "device time", .unit = "s"}};
  for (const Group& block : blocks) {
    if (block.work.timed_ops == 0) continue;
    const double x = category_index(chart.x, block.phase);
    series_named(chart, block.name).points.push_back({.x = x, .y = block.work.device_s});
  }
  return chart;
}

bool has_parts(const std::vector<Group>& parts) {
  for (const Group& part : parts) {
    if (part.name.find('/') != std::string::npos) return true;
  }
  return false;
}

/// Device seconds, FLOP and bytes of one class in forward and in the whole step.
struct ClassSum {
  double forward_s = 0, step_s = 0, forward_flop = 0, step_flop = 0, step_bytes = 0, roof_s = 0;
  bool has_roof = true;

  void add(const Group& group) {
    const Work& work = group.work;
    if (group.phase == kPhases[0]) {
      forward_s += work.device_s;
      forward_flop += work.flop();
    }
    step_s += work.device_s;
    step_flop += work.flop();
    step_bytes += static_cast<double>(work.bytes);
    roof_s += work.roof_s.value_or(0);
    has_roof = has_roof && work.roof_s.has_value();
  }
};

Row class_row(const std::string& name, const ClassSum& sum, const ClassSum& total) {
  Row row;
  row.set("class", name);
  row.set("forward_s", sum.forward_s);
  row.set("forward_share", cell_of(ratio_of(sum.forward_s, total.forward_s)));
  row.set("forward_flop_share", cell_of(ratio_of(sum.forward_flop, total.forward_flop)));
  row.set("step_s", sum.step_s);
  row.set("step_share", cell_of(ratio_of(sum.step_s, total.step_s)));
  row.set("step_flop_share", cell_of(ratio_of(sum.step_flop, total.step_flop)));
  row.set("step_bytes_share", cell_of(ratio_of(sum.step_bytes, total.step_bytes)));
  row.set("roof_s", sum.has_roof ? Cell(sum.roof_s) : Cell());
  row.set("share", sum.has_roof ? cell_of(ratio_of(sum.roof_s, sum.step_s)) : Cell());
  return row;
}

/// The chart of classes: forward against the whole step, each as 100 %.
Chart class_chart(const std::vector<std::pair<std::string, ClassSum>>& sums) {
  Chart chart{.id = "classes",
              .title = "Op classes, forward against the whole step",
              .kind = ChartKind::stacked100,
              .x = {.title = "part of the step", .categories = {kPhases[0].data(), kStep}},
              .y = {.title = "device time", .unit = "s"}};
  for (const auto& [name, sum] : sums) {
    chart.series.push_back(
        {.name = name, .points = {{.x = 0, .y = sum.forward_s}, {.x = 1, .y = sum.step_s}}});
  }
  return chart;
}

/// Says what wall times of a GPU are.
void note_alone(const RunData& run, Table& table) {
  if (std::string note = alone_note(run); !note.empty()) table.notes.push_back(std::move(note));
}

void add_blocks(const RunData& run, const ViewOptions& /*options*/, View& view) {
  if (!run.has_op_times()) return;
  const std::vector<Group> blocks = blocks_of(run);
  Table table{.columns = block_columns("block"), .rows = {}, .notes = {}};
  for (const Group& block : blocks) table.rows.push_back(block_row(block));
  note_alone(run, table);
  view.add("blocks", "Blocks", std::move(table));
  const std::vector<Group> parts = parts_of(run);
  if (has_parts(parts)) {
    Table detail{.columns = block_columns("part"), .rows = {}, .notes = {}};
    for (const Group& part : parts) {
      if (part.name.find('/') != std::string::npos) detail.rows.push_back(block_row(part));
    }
    view.add("blocks.parts", "Parts of the blocks", std::move(detail));
  }
  view.add(block_chart(blocks));
}

void add_classes(const RunData& run, const ViewOptions& /*options*/, View& view) {
  if (!run.has_op_times()) return;
  std::vector<std::pair<std::string, ClassSum>> sums;
  std::map<std::string, std::size_t> index;
  ClassSum total;
  for (const Group& group : group_ops(run, [](const TimedOp& op) { return op.op.op_class; })) {
    const auto [entry, is_new] = index.try_emplace(group.name, sums.size());
    if (is_new) sums.emplace_back(group.name, ClassSum());
    sums[entry->second].second.add(group);
    total.add(group);
  }
  Table table{.columns = {{"class", "class"},
                          {"forward_s", "forward", Show::seconds, "s"},
                          {"forward_share", "of forward", Show::percent},
                          {"forward_flop_share", "of its FLOP", Show::percent},
                          {"step_s", run.is_part ? "shown" : "in kernels", Show::seconds, "s"},
                          {"step_share", share_title(run), Show::percent},
                          {"step_flop_share", "of its FLOP", Show::percent},
                          {"step_bytes_share", "of its bytes", Show::percent},
                          {"roof_s", "roof", Show::seconds, "s"},
                          {"share", "share", Show::percent}},
              .rows = {},
              .notes = {}};
  for (const auto& [name, sum] : sums) table.rows.push_back(class_row(name, sum, total));
  view.add("classes", "Op classes", std::move(table));
  view.add(class_chart(sums));
}

/// Kernels of one block and phase in traced steps, and the time before them in which the device ran nothing.
struct GapSum {
  double kernels = 0, part_s = 0, idle_s = 0;
};

/// Gaps on a device: what lies before each kernel, where the host submits steps as a whole and has no wall
/// times of ops.
Table device_gap_table(const RunData& run) {
  const TracedKernels& kernels = traced_kernels(run);
  const auto steps = static_cast<double>(kernels.steps());
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, GapSum> sums;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.op == nullptr) continue;
    const std::pair<std::string, std::string> key{kernel.op->op.phase, kernel.op->block};
    const auto [entry, is_new] = sums.try_emplace(key);
    if (is_new) order.push_back(key);
    entry->second.kernels += 1 / steps;
    entry->second.part_s += kernel.part_s() / steps;
  }
  for (const Idle& idle : kernels.times().idle) {
    const DeviceStep* step = kernels.times().find(idle.step);
    const TracedKernel* next = idle.next ? kernels.find(*idle.next) : nullptr;
    if (step == nullptr || step->kind != kTraced || next == nullptr || next->op == nullptr) continue;
    sums[{next->op->op.phase, next->op->block}].idle_s +=
        static_cast<double>(idle.end_ns - idle.start_ns) * 1e-9 / steps;
  }
  Table table{.columns = {{"phase", "phase"},
                          {"block", "block"},
                          {"kernels", "kernels per step"},
                          {"kernel_s", "in kernels", Show::seconds, "s"},
                          {"idle_s", "idle before them", Show::seconds, "s"},
                          {"gap_s", "per kernel", Show::seconds, "s"},
                          {"idle_share", "idle share", Show::percent}},
              .rows = {},
              .notes = {"from traced steps; idle before a kernel: no kernel ran, for any reason (view device "
                        "tells them apart); time in which several kernels run is divided among them"}};
  for (const auto& key : order) {
    const GapSum& sum = sums.at(key);
    Row row;
    row.set("phase", key.first);
    row.set("block", key.second);
    row.set("kernels", sum.kernels);
    row.set("kernel_s", sum.part_s);
    row.set("idle_s", sum.idle_s);
    row.set("gap_s", cell_of(ratio_of(sum.idle_s, sum.kernels)));
    row.set("idle_share", cell_of(ratio_of(sum.idle_s, sum.idle_s + sum.part_s)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_gap(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = {{"phase", "phase"},
                          {"block", "block"},
                          {"launches", "launches"},
                          {"wall_s", "wall", Show::seconds, "s"},
                          {"device_s", "device", Show::seconds, "s"},
                          {"outside_s", "outside kernels", Show::seconds, "s"},
                          {"gap_s", "per launch", Show::seconds, "s"},
                          {"outside_share", "of wall", Show::percent}},
              .rows = {},
              .notes = {}};
  bool has_wall = false;
  for (const Group& block : blocks_of(run)) {
    const Work& work = block.work;
    if (work.timed_ops == 0) continue;
    const auto wall_s = work.shown_wall_s();
    const auto outside_s = work.shown_outside_s();
    Row row;
    row.set("phase", block.phase);
    row.set("block", block.name);
    row.set("launches", work.launches);
    row.set("wall_s", cell_of(wall_s));
    row.set("device_s", work.device_s);
    row.set("outside_s", cell_of(outside_s));
    row.set("gap_s", cell_of(work.shown_gap_s()));
    row.set("outside_share", cell_of(ratio_of(outside_s, wall_s)));
    has_wall = has_wall || wall_s.has_value();
    table.rows.push_back(std::move(row));
  }
  note_alone(run, table);
  // Records without wall times of blocks: the device's own gaps say more than a table of nothing.
  Table on_device = device_gap_table(run);
  if (has_wall || on_device.rows.empty()) view.add("gap", "Launch gap by block", std::move(table));
  view.add("gap.device", "Gaps on the device by block", std::move(on_device));
}

constexpr std::array kBlocksViews = {
    ViewDef{.place = 30,
            .info = {.name = "blocks",
                     .title = "Blocks",
                     .note = "Where the step's time goes, summed over layers. device: time in kernels; wall: "
                             "includes dispatch, allocation and waiting, as observed.",
                     .needs = kNeedsOpTimes,
                     .is_on_page = true},
            .of_run = add_blocks,
            .of_all = nullptr},
    ViewDef{.place = 50,
            .info = {.name = "classes",
                     .title = "Op classes",
                     .note = "Kinds of work. A class whose share of the time is larger than its share of the "
                             "FLOP is not bound by arithmetic.",
                     .needs = kNeedsOpTimes,
                     .is_on_page = false},
            .of_run = add_classes,
            .of_all = nullptr},
    ViewDef{.place = 70,
            .info = {.name = "gap",
                     .title = "Launch gap",
                     .note = "(wall - device) / launches: the cost of a launch outside its kernel; on a "
                             "traced device, the idle time before each kernel. Many small launches with "
                             "large gaps are candidates for fusion.",
                     .needs = kNeedsOpTimes,
                     .is_on_page = false},
            .of_run = add_gap,
            .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_blocks() { return kBlocksViews; }

}  // namespace rooflm::report
