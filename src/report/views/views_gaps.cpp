// The view of the longest stretches without a kernel.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/model/gaps.h"
#include "report/model/traced_kernels.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

constexpr std::size_t kMostGaps = 1000;

/// A gap with what it is in and what ended it.
struct ShownGap : Gap {
  const DeviceStep* in_step = nullptr;
  const TracedKernel* ended_by = nullptr;

  [[nodiscard]] std::optional<std::int64_t> step_number() const {
    return step == kWholeRecording ? std::nullopt : std::optional(step);
  }
  [[nodiscard]] std::optional<double> step_share() const {
    return in_step == nullptr ? std::nullopt : ratio_of(seconds(), in_step->span_s());
  }
  [[nodiscard]] std::string before() const {
    return ended_by == nullptr ? "end of the step" : ended_by->name->short_name;
  }
  [[nodiscard]] Cell part() const {
    return ended_by == nullptr || ended_by->op == nullptr ? Cell()
                                                          : ended_by->op->op.phase + " " + ended_by->op->part;
  }
};

const TypedColumns<ShownGap>& gap_columns() {
  static const TypedColumns<ShownGap> columns = [] {
    TypedColumns<ShownGap> all = {
        {"step", "step", &ShownGap::step_number, Seen::when_known},
        {"at_s", "at",
         [](const ShownGap& shown) {
           return static_cast<double>(shown.start_ns - shown.step_start_ns) * core::kNano;
         },
         Show::seconds},
        {"recorded_s",
         [](const ShownGap& shown) { return static_cast<double>(shown.start_ns) * core::kNano; }},
        {"seconds", "gap", &ShownGap::seconds, Show::seconds},
        {"step_share", "of the step", &ShownGap::step_share, Show::percent},
        {"device", "device", &ShownGap::device},
        {"cause", "mostly", &ShownGap::cause},
        {"next", "before", &ShownGap::before},
        {"part", "part", &ShownGap::part, Seen::when_known},
        {"host", "the host was in", [](const ShownGap& shown) { return known_text(shown.host); },
         Seen::when_known},
        {"line", "line", [](const ShownGap& shown) { return known_text(shown.line); }, Seen::when_known},
        {"within", "within", [](const ShownGap& shown) { return known_text(shown.within); },
         Seen::when_known}};
    for (std::size_t i = 0; i < kIdleCauses; ++i) {
      const std::string key = std::string(name_of(static_cast<IdleCause>(i))) + "_s";
      all.add({key.c_str(), [i](const ShownGap& shown) { return shown.cause_s.at(i); }});
    }
    return all;
  }();
  return columns;
}

void add_gaps_view(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  std::vector<ShownGap> shown;
  for (Gap& gap : gaps_of(run, options.top == 0 ? kMostGaps : options.top)) {
    if (gap.device.empty()) gap.device = run.setting("device");
    const DeviceStep* step = kernels.times().find(gap.step);
    const TracedKernel* next = gap.next ? kernels.find(*gap.next) : nullptr;
    shown.push_back({{std::move(gap)}, step, next});
  }
  view.add("gaps", "Longest gaps", gap_columns().table(shown));
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
    .columns = [] { return columns_of(gap_columns()); }}};

}  // namespace

std::span<const ViewDef> views_gaps() { return kGapViews; }

}  // namespace rooflm::report
