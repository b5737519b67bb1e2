// The view of operators: what the host took for each, of a program that is not ours.
#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/operator_sums.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

constexpr double kViewsOperatorsNano = 1e-9;

Table operator_table(const OperatorSums& sums, const std::vector<OperatorSum>& rows, const char* detail,
                     std::size_t top) {
  Table table{.columns = {{"self_share", "self %", Show::percent},
                          {"self_s", "self", Show::seconds, "s"},
                          {"total_s", "total", Show::seconds, "s"},
                          {"calls", "calls"},
                          {"avg_s", "avg", Show::seconds, "s"}},
              .rows = {},
              .notes = {}};
  if (sums.has_device) {
    table.columns.push_back({"device_self_s", "device self", Show::seconds, "s"});
    table.columns.push_back({"device_s", "device", Show::seconds, "s"});
  }
  table.columns.push_back({"name", "operator"});
  if (detail != nullptr) table.columns.push_back({"detail", detail});
  double all_s = 0;
  for (const OperatorSum& sum : rows) all_s += kViewsOperatorsNano * static_cast<double>(sum.self_ns);
  for (const OperatorSum& sum : rows) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more (--top 0 shows all)", rows.size() - top));
      break;
    }
    const auto seconds = [](std::int64_t ns) { return kViewsOperatorsNano * static_cast<double>(ns); };
    Row row;
    row.set("self_share", cell_of(ratio_of(seconds(sum.self_ns), all_s)));
    row.set("self_s", seconds(sum.self_ns));
    row.set("total_s", seconds(sum.total_ns));
    row.set("calls", static_cast<std::int64_t>(sum.calls));
    row.set("avg_s", seconds(sum.total_ns) / static_cast<double>(sum.calls));
    if (sums.has_device) {
      row.set("device_self_s", seconds(sum.device_self_ns));
      row.set("device_s", seconds(sum.device_ns));
    }
    row.set("name", sum.name);
    if (detail != nullptr) row.set("detail", sum.detail.empty() ? Cell() : Cell(sum.detail));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_operators(const RunData& run, const ViewOptions& options, View& view) {
  if (run.run.kind != "foreign") return;  // ours have the view "ops"
  const OperatorSums sums = operator_sums(run);
  if (sums.by_name.empty()) return;
  view.add("operators", "Operators", operator_table(sums, sums.by_name, nullptr, options.top));
  if (!sums.by_inputs.empty()) {
    view.add("operators.inputs", "Operators by their inputs",
             operator_table(sums, sums.by_inputs, "inputs", options.top));
  }
  if (!sums.by_stack.empty()) {
    view.add("operators.stacks", "Operators by where they were called",
             operator_table(sums, sums.by_stack, "innermost lines of the program", options.top));
  }
}

constexpr std::array kOperatorsViews = {ViewDef{
    .place = 45,
    .info = {.name = "operators",
             .title = "Operators on the host",
             .note = "PyTorch's operators on the threads that called them. self: without the operators and "
                     "calls of the runtime within; total: with them, where an operator calls itself once. "
                     "avg: total / calls. device: what it started there, with the operators within, "
                     "each kernel once; device self: without those.",
             .needs = "operators (a trace of torch.profiler)",
             .is_on_page = false},
    .of_run = add_operators,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_operators() { return kOperatorsViews; }

}  // namespace rooflm::report
