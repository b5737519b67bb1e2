// The view of contention: how much slower a kernel runs with something beside it.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/units.h"
#include "report/contention.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

Row contention_row(const Contention& one) {
  Row row;
  row.set("class", one.kernel_class);
  row.set("beside", one.beside);
  row.set("phase", one.phase);
  row.set("part", one.part);
  row.set("alone", static_cast<std::int64_t>(one.alone));
  row.set("alone_s", one.alone_s);
  row.set("together", static_cast<std::int64_t>(one.together));
  row.set("together_s", one.together_s);
  row.set("slowdown", one.slowdown);
  row.set("lost_s", one.lost_s);
  row.set("name", one.kernel);
  return row;
}

void add_contention(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  const std::vector<Contention> all = contention_of(kernels);
  Table table{.columns = {{"class", "class"},
                          {"beside", "beside"},
                          {"phase", "phase"},
                          {"part", "part"},
                          {"alone", "alone"},
                          {"alone_s", "med alone", Show::seconds, "s"},
                          {"together", "together"},
                          {"together_s", "med together", Show::seconds, "s"},
                          {"slowdown", "slower", Show::fixed2},
                          {"lost_s", "lost in a step", Show::seconds, "s"},
                          {"name", "name"}},
              .rows = {},
              .notes = {}};
  double lost_s = 0;
  for (const Contention& one : all) {
    lost_s += one.lost_s;
    if (options.top == 0 || table.rows.size() < options.top) table.rows.push_back(contention_row(one));
  }
  if (table.rows.size() < all.size()) {
    table.notes.push_back(fmt::format("{} more kernels (--top 0 shows all)", all.size() - table.rows.size()));
  }
  table.notes.push_back(
      fmt::format("kernels run {} longer in a step than they would alone", core::format_seconds(lost_s)));
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
             .needs = "traced steps in which kernels overlap (rooflm profile on a GPU with CUPTI)",
             .is_on_page = false},
    .of_run = add_contention,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_contention() { return kContentionViews; }

}  // namespace rooflm::report
