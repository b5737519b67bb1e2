// The view of contention: how much slower a kernel runs with something beside it.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/units.h"
#include "report/model/contention.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

const TypedColumns<Contention>& contention_columns() {
  static const TypedColumns<Contention> columns = {
      {"class", "class", &Contention::kernel_class},
      {"beside", "beside", &Contention::beside},
      {"phase", "phase", &Contention::phase},
      {"part", "part", &Contention::part},
      {"alone", "alone", &Contention::alone},
      {"alone_s", "med alone", &Contention::alone_s, Show::seconds},
      {"together", "together", &Contention::together},
      {"together_s", "med together", &Contention::together_s, Show::seconds},
      {"slowdown", "slower", &Contention::slowdown, Show::fixed2},
      {"lost_s", "lost in a step", &Contention::lost_s, Show::seconds},
      {"name", "name", &Contention::kernel}};
  return columns;
}

void add_contention(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  const std::vector<Contention> all = contention_of(kernels);
  Table table = contention_columns().table(all, options.top, "kernels");
  double lost_s = 0;
  for (const Contention& one : all) lost_s += one.lost_s;
  table.notes.push_back(
      fmt::format("kernels take {} longer in a step than they would alone", core::format_seconds(lost_s)));
  if (const auto gain = overlap_gain(kernels.times())) {
    table.notes.push_back(fmt::format(
        "the step takes {} on the device and would take {} with one kernel at a time: overlap saves {}; "
        "several kernels run at once for {}",
        core::format_seconds(gain->overlapped_s), core::format_seconds(gain->in_order_s),
        core::format_seconds(gain->in_order_s - gain->overlapped_s), core::format_seconds(gain->shared_s)));
  }
  view.add("contention", "The same kernel alone and overlapped", std::move(table));
}

constexpr std::array kContentionViews = {ViewDef{
    .place = 44,
    .info = {.name = "contention",
             .title = "Contention",
             .note =
                 "The same kernel on the same problem: alone, and overlapped by another kernel for at least "
                 "half of its time. The time alone comes from steps traced with one kernel at a time.",
             .needs = "traced steps in which kernels overlap (rooflm profile on a GPU with CUPTI)"},
    .of_run = add_contention,
    .columns = [] { return columns_of(contention_columns()); }}};

}  // namespace

std::span<const ViewDef> views_contention() { return kContentionViews; }

}  // namespace rooflm::report
