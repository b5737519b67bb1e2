// The view of the longest stretches without a kernel.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/gaps.h"
#include "report/traced_kernels.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

constexpr std::size_t kMostGaps = 1000;

Row gap_row(const RunData& run, const TracedKernels& kernels, const Gap& gap) {
  const DeviceStep* step = kernels.times().find(gap.step);
  const TracedKernel* next = gap.next ? kernels.find(*gap.next) : nullptr;
  const auto in_s = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  Row row;
  row.set("step", gap.step == kWholeRecording ? Cell() : Cell(gap.step));
  row.set("at_s", in_s(gap.start_ns - gap.step_start_ns));
  row.set("recorded_s", in_s(gap.start_ns));
  row.set("seconds", gap.seconds());
  row.set("step_share", step == nullptr ? Cell() : cell_of(ratio_of(gap.seconds(), step->span_s())));
  row.set("device", gap.device.empty() ? run.setting("device") : gap.device);
  row.set("cause", std::string(name_of(gap.cause())));
  row.set("next", next == nullptr ? "end of the step" : next->name->short_name);
  row.set("part",
          next == nullptr || next->op == nullptr ? Cell() : Cell(next->op->op.phase + " " + next->op->part));
  const auto text = [](const std::string& value) { return value.empty() ? Cell() : Cell(value); };
  row.set("host", text(gap.host));
  row.set("within", text(gap.within));
  row.set("line", text(gap.line));
  for (std::size_t i = 0; i < kIdleCauses; ++i)
    row.set(std::string(name_of(static_cast<IdleCause>(i))) + "_s", gap.cause_s.at(i));
  return row;
}

void add_gaps_view(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  const std::vector<Gap> gaps = gaps_of(run, options.top == 0 ? kMostGaps : options.top);
  Table table{.columns = {{"step", "step"},
                          {"at_s", "at", Show::seconds, "s"},
                          {"seconds", "gap", Show::seconds, "s"},
                          {"step_share", "of the step", Show::percent},
                          {"device", "device"},
                          {"cause", "mostly"},
                          {"next", "before"},
                          {"part", "part"},
                          {"host", "the host was in"},
                          {"line", "line"},
                          {"within", "within"}},
              .rows = {},
              .notes = {}};
  for (const Gap& gap : gaps) table.rows.push_back(gap_row(run, kernels, gap));
  // What nobody recorded needs no column.
  for (const char* key : {"step", "part", "within", "line", "host"}) {
    const bool is_known = std::ranges::any_of(
        table.rows, [&](const Row& row) { return !std::holds_alternative<std::monostate>(*row.find(key)); });
    if (!is_known) std::erase_if(table.columns, [&](const Column& column) { return column.key == key; });
  }
  view.add("gaps", "Longest gaps", std::move(table));
}

constexpr std::array kGapViews = {ViewDef{
    .place = 48,
    .info =
        {.name = "gaps",
         .title = "Longest gaps",
         .note =
             "The longest stretches in which a device ran no kernel. at: since the step began, or since the "
             "first kernel where no step is known. Causes as in the view device. The host: the innermost "
             "call "
             "or range of the thread that launched the next kernel, and its line, where stacks were sampled.",
         .needs = "traced kernels (rooflm profile on a GPU with CUPTI, rooflm record, rooflm import)",
         .is_on_page = true},
    .of_run = add_gaps_view,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_gaps() { return kGapViews; }

}  // namespace rooflm::report
