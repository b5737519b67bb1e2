// The view that takes attention apart: where its time goes against where its arithmetic is.
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/model/work_figures.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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

/// A part of attention beside the whole block.
struct AttentionPart : Group {
  Work block;
  std::optional<PartKernels> kernels{};

  [[nodiscard]] std::string part() const { return part_name(name); }
  [[nodiscard]] std::optional<double> device_s() const { return work.measured_s(); }
  [[nodiscard]] std::optional<double> block_share() const { return ratio_of(device_s(), block.device_s); }
  [[nodiscard]] std::optional<double> flop_share() const { return ratio_of(work.flop(), block.flop()); }
  [[nodiscard]] std::optional<double> bytes_share() const {
    return ratio_of(static_cast<double>(work.bytes), static_cast<double>(block.bytes));
  }
  [[nodiscard]] std::optional<double> kernel_share() const {
    return kernels ? ratio_of(kernels->seconds, device_s()) : std::nullopt;
  }
};

const TypedColumns<AttentionPart>& attention_columns() {
  using Part = AttentionPart;
  static const TypedColumns<AttentionPart> columns = {
      {"phase", "phase", &Part::phase},
      {"part", "part", &Part::part},
      {"device_s", "device", &Part::device_s, Show::seconds},
      {"time_share", "time", &Part::block_share, Show::percent},
      {"flop_share", "FLOP", &Part::flop_share, Show::percent},
      {"bytes_share", "bytes", &Part::bytes_share, Show::percent},
      {"step_share", "of kernels", &Part::time_share, Show::percent},
      {"share", "roof/measured", [](const Part& one) { return work_figures(one.work).roof_share; },
       Show::percent},
      {"kernels", "kernels", [](const Part& one) { return one.kernels ? Cell(one.kernels->count) : Cell(); },
       Seen::when_known, Show::fixed1},
      {"kernel_s", "in kernels",
       [](const Part& one) { return one.kernels ? Cell(one.kernels->seconds) : Cell(); }, Seen::when_known,
       Show::seconds},
      {"kernel_share", "of device", &Part::kernel_share, Seen::when_known, Show::percent}};
  return columns;
}

void add_shares(Chart& chart, const AttentionPart& part) {
  const double time_x = category_index(chart.x, part.phase + ": time");
  const double flop_x = category_index(chart.x, part.phase + ": FLOP");
  Series& series = series_named(chart, part.part());
  series.points.push_back({.x = time_x, .y = part.block_share().value_or(0)});
  series.points.push_back({.x = flop_x, .y = part.flop_share().value_or(0)});
}

void add_attention(const RunData& run, const ViewOptions& /*options*/, View& view) {
  if (!run.has_op_times()) return;
  std::map<std::string, Work> blocks;
  for (const Group& block : blocks_of(run)) {
    if (block.name == kAttention) blocks[block.phase] = block.work;
  }
  const auto kernels = part_kernels(run);
  std::vector<AttentionPart> parts;
  Chart chart{.id = "attention",
              .title = "Attention: share of the time against share of the FLOP",
              .kind = ChartKind::stacked100,
              .x = {.title = "share of"},
              .y = {.title = "share", .unit = "share"}};
  for (const Group& part : parts_of(run)) {
    if (block_of(part.name) != kAttention) continue;
    AttentionPart& one = parts.emplace_back(AttentionPart{{part}, blocks[part.phase]});
    if (const auto found = kernels.find({part.phase, part.name}); found != kernels.end())
      one.kernels = found->second;
    add_shares(chart, one);
  }
  Table table = attention_columns().with_title("step_share", share_title(run)).table(parts);
  if (!kernels.empty()) {
    table.notes.emplace_back(
        "kernels: launches per traced step; in kernels: kernel time alone, while device is the time of ops "
        "from start to end");
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
                     .needs = kNeedsOpTimes},
            .of_run = add_attention,
            .columns =
                [] {
                  return columns_of(attention_columns(),
                                    attention_columns().with_title("step_share", "of shown"));
                }},
};

}  // namespace

std::span<const ViewDef> views_attention() { return kAttentionViews; }

}  // namespace rooflm::report
