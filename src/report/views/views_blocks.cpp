// Views of the blocks of a step: time, classes of ops, launch gap.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/grouped.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/model/work_figures.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

const TypedColumns<Group>& block_columns() {
  static const TypedColumns<Group> columns = {
      {"phase", "phase", &Group::phase},
      {"block", "block", &Group::name},
      {"ops", "ops", [](const Group& group) { return group.work.ops; }},
      {"launches", "launches", [](const Group& group) { return group.work.launches; }},
      {"device_s", "device", [](const Group& group) { return group.work.measured_s(); }, Show::seconds},
      {"wall_s", "wall", [](const Group& group) { return group.work.shown_wall_s(); }, Show::seconds},
      {"time_share", "of kernels", &Group::time_share, Show::percent},
      {"flop", "FLOP",
       [](const Group& group) {
         const Work& work = group.work;
         return work.is_priced() ? std::optional(work.matmul_flop + work.elementwise_flop) : std::nullopt;
       },
       Show::si, "flop"},
      {"bytes", "bytes",
       [](const Group& group) {
         return group.work.is_priced() ? std::optional(group.work.bytes) : std::nullopt;
       },
       Show::bytes},
      {"roof_s", "roof", [](const Group& group) { return group.work.shown_roof_s(); }, Show::seconds},
      {"share", "share", [](const Group& group) { return work_figures(group.work).roof_share; },
       Show::percent},
      {"bound", "bound", [](const Group& group) { return group.work.bound; }}};
  return columns;
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

/// Device seconds, FLOP and bytes of one class in forward and in the whole step.
struct ClassSum {
  std::string name{};
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

/// A class beside all of them.
struct ClassShare {
  ClassSum sum, total;
  [[nodiscard]] std::optional<double> of(double ClassSum::*what) const {
    return ratio_of(sum.*what, total.*what);
  }
  [[nodiscard]] std::optional<double> roof_s() const {
    return sum.has_roof && sum.roof_s != 0 ? std::optional(sum.roof_s) : std::nullopt;
  }
};

const TypedColumns<ClassShare>& class_share_columns() {
  using Share = ClassShare;
  static const TypedColumns<ClassShare> columns = {
      {"class", "class", [](const Share& one) { return one.sum.name; }},
      {"forward_s", "forward", [](const Share& one) { return one.sum.forward_s; }, Show::seconds},
      {"forward_share", "of forward", [](const Share& one) { return one.of(&ClassSum::forward_s); },
       Show::percent},
      {"forward_flop_share", "of its FLOP", [](const Share& one) { return one.of(&ClassSum::forward_flop); },
       Show::percent},
      {"step_s", "in kernels", [](const Share& one) { return one.sum.step_s; }, Show::seconds},
      {"step_share", "of kernels", [](const Share& one) { return one.of(&ClassSum::step_s); }, Show::percent},
      {"step_flop_share", "of its FLOP", [](const Share& one) { return one.of(&ClassSum::step_flop); },
       Show::percent},
      {"step_bytes_share", "of its bytes", [](const Share& one) { return one.of(&ClassSum::step_bytes); },
       Show::percent},
      {"roof_s", "roof", &Share::roof_s, Show::seconds},
      {"share", "share", [](const Share& one) { return ratio_of(one.roof_s(), one.sum.step_s); },
       Show::percent}};
  return columns;
}

/// The chart of classes: forward against the whole step, each as 100 %.
Chart class_chart(const std::vector<ClassSum>& sums) {
  Chart chart{.id = "classes",
              .title = "Op classes, forward against the whole step",
              .kind = ChartKind::stacked100,
              .x = {.title = "part of the step", .categories = {kPhases[0].data(), kStep}},
              .y = {.title = "device time", .unit = "s"}};
  for (const ClassSum& sum : sums) {
    chart.series.push_back(
        {.name = sum.name, .points = {{.x = 0, .y = sum.forward_s}, {.x = 1, .y = sum.step_s}}});
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
  Table table = block_columns().table(blocks);
  note_alone(run, table);
  view.add("blocks", "Blocks", std::move(table));
  std::vector<Group> parts = parts_of(run);
  std::erase_if(parts, [](const Group& part) { return part.name.find('/') == std::string::npos; });
  view.add("blocks.parts", "Parts of the blocks", block_columns().with_title("block", "part").table(parts));
  view.add(block_chart(blocks));
}

void add_classes(const RunData& run, const ViewOptions& /*options*/, View& view) {
  if (!run.has_op_times()) return;
  core::Grouped<std::string, ClassSum> sums;
  ClassSum total;
  for (const Group& group : group_ops(run, [](const TimedOp& op) { return op.op.op_class; })) {
    sums.at(group.name, [&] { return ClassSum{.name = group.name}; }).add(group);
    total.add(group);
  }
  std::vector<ClassShare> shares;
  for (const ClassSum& sum : sums.values()) shares.push_back({.sum = sum, .total = total});
  view.add("classes", "Op classes",
           class_share_columns()
               .with_title("step_s", run.is_part ? "shown" : "in kernels")
               .with_title("step_share", share_title(run))
               .table(shares));
  view.add(class_chart(sums.values()));
}

/// Kernels of one block and phase in traced steps, and the time before them in which the device ran nothing.
struct GapSum {
  std::string phase{}, block{};
  double kernels = 0, part_s = 0, idle_s = 0;
};

const TypedColumns<GapSum>& device_gap_columns() {
  static const TypedColumns<GapSum> columns = {
      {"phase", "phase", &GapSum::phase},
      {"block", "block", &GapSum::block},
      {"kernels", "kernels per step", &GapSum::kernels},
      {"kernel_s", "in kernels", &GapSum::part_s, Show::seconds},
      {"idle_s", "idle before them", &GapSum::idle_s, Show::seconds},
      {"gap_s", "per kernel", [](const GapSum& sum) { return ratio_of(sum.idle_s, sum.kernels); },
       Show::seconds},
      {"idle_share", "idle share",
       [](const GapSum& sum) { return ratio_of(sum.idle_s, sum.idle_s + sum.part_s); }, Show::percent}};
  return columns;
}

/// Gaps on a device: what lies before each kernel, where the host submits steps as a whole and has no wall
/// times of ops.
Table device_gap_table(const RunData& run) {
  const TracedKernels& kernels = traced_kernels(run);
  const auto steps = static_cast<double>(kernels.steps());
  core::Grouped<std::pair<std::string, std::string>, GapSum> sums;
  const auto sum_of = [&](const record::Op& op, const std::string& block) -> GapSum& {
    return sums.at({op.phase, block}, [&] { return GapSum{.phase = op.phase, .block = block}; });
  };
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.op == nullptr) continue;
    GapSum& sum = sum_of(kernel.op->op, kernel.op->block);
    sum.kernels += 1 / steps;
    sum.part_s += kernel.part_s() / steps;
  }
  for (const Idle& idle : kernels.times().idle) {
    const DeviceStep* step = kernels.times().find(idle.step);
    const TracedKernel* next = idle.next ? kernels.find(*idle.next) : nullptr;
    if (step == nullptr || step->kind != kTraced || next == nullptr || next->op == nullptr) continue;
    sum_of(next->op->op, next->op->block).idle_s +=
        static_cast<double>(idle.end_ns - idle.start_ns) * 1e-9 / steps;
  }
  Table table = device_gap_columns().table(sums.values());
  table.notes.emplace_back(
      "from traced steps; idle before a kernel: no kernel ran, for any reason (view device "
      "tells them apart); time in which several kernels run is divided among them");
  return table;
}

const TypedColumns<Group>& launch_gap_columns() {
  static const TypedColumns<Group> columns = {
      {"phase", "phase", &Group::phase},
      {"block", "block", &Group::name},
      {"launches", "launches", [](const Group& group) { return group.work.launches; }},
      {"wall_s", "wall", [](const Group& group) { return group.work.shown_wall_s(); }, Show::seconds},
      {"device_s", "device", [](const Group& group) { return group.work.device_s; }, Show::seconds},
      {"outside_s", "outside kernels", [](const Group& group) { return group.work.shown_outside_s(); },
       Show::seconds},
      {"gap_s", "per launch", [](const Group& group) { return group.work.shown_gap_s(); }, Show::seconds},
      {"outside_share", "of wall",
       [](const Group& group) { return ratio_of(group.work.shown_outside_s(), group.work.shown_wall_s()); },
       Show::percent}};
  return columns;
}

void add_gap(const RunData& run, const ViewOptions& /*options*/, View& view) {
  std::vector<Group> blocks = blocks_of(run);
  std::erase_if(blocks, [](const Group& block) { return block.work.timed_ops == 0; });
  const bool has_wall =
      std::ranges::any_of(blocks, [](const Group& block) { return block.work.shown_wall_s().has_value(); });
  Table table = launch_gap_columns().table(blocks);
  note_alone(run, table);
  // Records without wall times of blocks: the device's own gaps say more than a table of nothing.
  Table on_device = device_gap_table(run);
  if (has_wall || on_device.rows.empty()) view.add("gap", "Launch gap by block", std::move(table));
  view.add("gap.device", "Gaps on the device by block", std::move(on_device));
}

constexpr std::array kBlocksViews = {
    ViewDef{
        .place = 30,
        .info = {.name = "blocks",
                 .title = "Blocks",
                 .note = "Where the step's time goes, summed over layers. device: time in kernels; wall: "
                         "includes dispatch, allocation and waiting, as observed.",
                 .needs = kNeedsOpTimes,
                 .is_on_page = true},
        .of_run = add_blocks,
        .columns = [] { return columns_of(block_columns(), block_columns().with_title("block", "part")); }},
    ViewDef{
        .place = 50,
        .info = {.name = "classes",
                 .title = "Op classes",
                 .note = "Kinds of work. A class whose share of the time is larger than its share of the "
                         "FLOP is not bound by arithmetic.",
                 .needs = kNeedsOpTimes},
        .of_run = add_classes,
        .columns =
            [] {
              return columns_of(
                  class_share_columns(),
                  class_share_columns().with_title("step_s", "shown").with_title("step_share", "of shown"));
            }},
    ViewDef{.place = 70,
            .info = {.name = "gap",
                     .title = "Launch gap",
                     .note = "(wall - device) / launches: the cost of a launch outside its kernel; on a "
                             "traced device, the idle time before each kernel. Many small launches with "
                             "large gaps are candidates for fusion.",
                     .needs = kNeedsOpTimes},
            .of_run = add_gap,
            .columns = [] { return columns_of(launch_gap_columns(), device_gap_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_blocks() { return kBlocksViews; }

}  // namespace rooflm::report
