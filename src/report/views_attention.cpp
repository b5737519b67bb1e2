// The view that takes attention apart: where its time goes against where its arithmetic is.
#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "report/summaries.h"
#include "report/traced_kernels.h"
#include "report/view_def.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kAttention = "attention";

/// "qk" of "attention/qk"; "attention" for ops of the block outside its parts.
std::string part_name(const std::string& part) {
  const auto slash = part.find('/');
  return slash == std::string::npos ? part : part.substr(slash + 1);
}

/// What traced kernels of a part take in a step.
struct PartKernels {
  double count = 0, seconds = 0;
};

/// By phase and part; nothing where no step was traced.
std::map<std::pair<std::string, std::string>, PartKernels> part_kernels(const RunData& run) {
  std::map<std::pair<std::string, std::string>, PartKernels> parts;
  const TracedKernels& traced = traced_kernels(run);
  // Where nothing ran beside anything else, as in observed steps.
  const std::size_t in_order = traced.times().count(kInOrder);
  const std::string_view kind = in_order > 0 ? kInOrder : kTraced;
  const auto steps = static_cast<double>(in_order > 0 ? in_order : traced.steps());
  for (const TracedKernel& kernel : traced.all()) {
    if (kernel.op == nullptr || kernel.step_kind != kind) continue;
    PartKernels& part = parts[{kernel.op->op.phase, kernel.op->part}];
    part.count += 1 / steps;
    part.seconds += kernel.seconds() / steps;
  }
  return parts;
}

Row part_row(const Group& part, const Work& block) {
  const Work& work = part.work;
  Row row;
  row.set("phase", part.phase);
  row.set("part", part_name(part.name));
  row.set("device_s", cell_of(work.measured_s()));
  row.set("time_share", cell_of(ratio_of(work.measured_s(), block.device_s)));
  row.set("flop_share", cell_of(ratio_of(work.flop(), block.flop())));
  row.set("bytes_share",
          cell_of(ratio_of(static_cast<double>(work.bytes), static_cast<double>(block.bytes))));
  row.set("step_share", cell_of(part.time_share));
  row.set("share", cell_of(work_figures(work).roof_share));
  return row;
}

void add_shares(Chart& chart, const Row& row) {
  const std::string phase = row.text("phase");
  const double time_x = category_index(chart.x, phase + ": time");
  const double flop_x = category_index(chart.x, phase + ": FLOP");
  Series& series = series_named(chart, row.text("part"));
  series.points.push_back({.x = time_x, .y = row.number("time_share")});
  series.points.push_back({.x = flop_x, .y = row.number("flop_share")});
}

void add_attention(const RunData& run, const ViewOptions& /*options*/, View& view) {
  if (!run.has_op_times()) return;
  std::map<std::string, Work> blocks;
  for (const Group& block : blocks_of(run)) {
    if (block.name == kAttention) blocks[block.phase] = block.work;
  }
  Table table{.columns = {{"phase", "phase"},
                          {"part", "part"},
                          {"device_s", "device", Show::seconds, "s"},
                          {"time_share", "time", Show::percent},
                          {"flop_share", "FLOP", Show::percent},
                          {"bytes_share", "bytes", Show::percent},
                          {"step_share", share_title(run), Show::percent},
                          {"share", "roof/measured", Show::percent}},
              .rows = {},
              .notes = {}};
  const auto kernels = part_kernels(run);
  if (!kernels.empty()) {
    table.columns.push_back({"kernels", "kernels", Show::fixed1});
    table.columns.push_back({"kernel_s", "in kernels", Show::seconds, "s"});
    table.columns.push_back({"kernel_share", "of device", Show::percent});
    table.notes.emplace_back(
        "kernels: launches per traced step; in kernels: kernel time alone, while device is the time of ops "
        "from start to end");
  }
  Chart chart{.id = "attention",
              .title = "Attention: share of the time against share of the FLOP",
              .kind = ChartKind::stacked100,
              .x = {.title = "share of"},
              .y = {.title = "share", .unit = "share"}};
  for (const Group& part : parts_of(run)) {
    if (block_of(part.name) != kAttention) continue;
    Row row = part_row(part, blocks[part.phase]);
    if (const auto found = kernels.find({part.phase, part.name}); found != kernels.end()) {
      row.set("kernels", found->second.count);
      row.set("kernel_s", found->second.seconds);
      row.set("kernel_share", cell_of(ratio_of(found->second.seconds, part.work.measured_s())));
    }
    table.rows.push_back(std::move(row));
    add_shares(chart, table.rows.back());
  }
  view.add("attention", "Parts of attention", std::move(table));
  view.add(std::move(chart));
}

constexpr std::array kAttentionViews = {
    ViewDef{.place = 90,
            .info = {.name = "attention",
                     .title = "Attention taken apart",
                     .note = "Shares of the attention block. A part whose time share is far above its FLOP "
                             "share is bound by memory or by dispatch, not by arithmetic.",
                     .needs = kNeedsOpTimes,
                     .is_on_page = false},
            .of_run = add_attention,
            .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_attention() { return kAttentionViews; }

}  // namespace rooflm::report
