// The view of operators: what the host took for each, of a program that is not ours.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/model/operator_sums.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

constexpr const char* kWithStacks = "innermost lines of the program";

/// An operator beside all that are shown with it.
struct ShownOperator : OperatorSum {
  std::int64_t all_self_ns = 0;
  bool has_device = false;  ///< it is known what operators started on the device

  [[nodiscard]] std::optional<double> self_share() const {
    return ratio_of(static_cast<double>(self_ns), static_cast<double>(all_self_ns));
  }
};

/// Seconds of a time of the operator.
auto seconds(std::int64_t OperatorSum::*ns) {
  return [ns](const ShownOperator& one) { return core::kNano * static_cast<double>(one.*ns); };
}

TypedColumn<ShownOperator> device_column(const char* key, const char* title, std::int64_t OperatorSum::*ns) {
  const auto of_device = [ns](const ShownOperator& one) {
    return one.has_device ? std::optional(seconds(ns)(one)) : std::nullopt;
  };
  return {key, title, of_device, Seen::when_known, Show::seconds};
}

const TypedColumns<ShownOperator>& operator_columns() {
  static const TypedColumns<ShownOperator> columns = {
      {"self_share", "self %", &ShownOperator::self_share, Show::percent},
      {"self_s", "self", seconds(&OperatorSum::self_ns), Show::seconds},
      {"total_s", "total", seconds(&OperatorSum::total_ns), Show::seconds},
      {"calls", "calls", &ShownOperator::calls},
      {"avg_s", "avg",
       [](const ShownOperator& one) {
         return seconds(&OperatorSum::total_ns)(one) / static_cast<double>(one.calls);
       },
       Show::seconds},
      device_column("device_self_s", "device self", &OperatorSum::device_self_ns),
      device_column("device_s", "device", &OperatorSum::device_ns),
      {"name", "operator", &ShownOperator::name},
      {"detail", "inputs", [](const ShownOperator& one) { return known_text(one.detail); },
       Seen::when_known}};
  return columns;
}

Table operator_table(const OperatorSums& sums, const std::vector<OperatorSum>& rows, const char* detail,
                     std::size_t top) {
  std::int64_t all_self_ns = 0;
  for (const OperatorSum& sum : rows) all_self_ns += sum.self_ns;
  std::vector<ShownOperator> shown;
  for (const OperatorSum& sum : rows) shown.push_back({{sum}, all_self_ns, sums.has_device});
  return operator_columns().with_title("detail", detail).table(shown, top, "operators");
}

void add_operators(const RunData& run, const ViewOptions& options, View& view) {
  if (run.run.kind != "foreign") return;  // ours have the view "ops"
  const OperatorSums sums = operator_sums(run);
  if (sums.by_name.empty()) return;
  view.add("operators", "Operators", operator_table(sums, sums.by_name, "inputs", options.top));
  view.add("operators.inputs", "Operators by their inputs",
           operator_table(sums, sums.by_inputs, "inputs", options.top));
  view.add("operators.stacks", "Operators by where they were called",
           operator_table(sums, sums.by_stack, kWithStacks, options.top));
}

constexpr std::array kOperatorsViews = {ViewDef{
    .place = 45,
    .info = {.name = "operators",
             .title = "Operators on the host",
             .note = "PyTorch's operators on the threads that called them. self: without the operators and "
                     "calls of the runtime within; total: with them, where an operator calls itself once. "
                     "avg: total / calls. device: what it started there, with the operators within, "
                     "each kernel once; device self: without those.",
             .needs = "operators (a trace of torch.profiler)"},
    .of_run = add_operators,
    .columns = [] {
      return columns_of(operator_columns(), operator_columns().with_title("detail", kWithStacks));
    }}};

}  // namespace

std::span<const ViewDef> views_operators() { return kOperatorsViews; }

}  // namespace rooflm::report
