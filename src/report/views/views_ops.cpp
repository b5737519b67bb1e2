// Views of single kernels: a summary like that of nsys, and how often each runs explained by the layers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/grouped.h"
#include "report/model/kernels.h"
#include "report/model/summaries.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

const TypedColumns<Kernel>& kernel_columns() {
  static const TypedColumns<Kernel> columns = {{"time_share", "time %", &Kernel::time_share, Show::percent},
                                               {"total_s", "total", &Kernel::total_s, Show::seconds},
                                               {"instances", "instances", &Kernel::instances},
                                               {"launches", "launches", &Kernel::launches},
                                               {"avg_s", "avg", &Kernel::mean_s, Show::seconds},
                                               {"med_s", "med", &Kernel::median_s, Show::seconds},
                                               {"min_s", "min", &Kernel::min_s, Show::seconds},
                                               {"max_s", "max", &Kernel::max_s, Show::seconds},
                                               {"std_s", "stddev", &Kernel::std_s, Show::seconds},
                                               {"phase", "phase", &Kernel::phase},
                                               {"class", &Kernel::op_class},
                                               {"name", "name", &Kernel::name},
                                               {"library", "library", &Kernel::library, Seen::when_known},
                                               {"variant", "variant", &Kernel::variant, Seen::when_known}};
  return columns;
}

/// Executions of one kernel in one step, by layer.
struct Instances {
  std::string phase{}, kind{}, kernel{};
  std::int64_t count = 0, outside = 0, measured = 0;
  std::map<std::int64_t, std::int64_t> by_layer{};
  std::int64_t layers_of_model = 0, steps = 0;

  [[nodiscard]] std::pair<std::int64_t, std::int64_t> range() const {
    const auto [least, most] = std::minmax_element(by_layer.begin(), by_layer.end(),
                                                   [](auto& a, auto& b) { return a.second < b.second; });
    return {least->second, most->second};
  }
  /// Nothing where layers differ.
  [[nodiscard]] std::optional<std::int64_t> per_layer() const {
    if (by_layer.empty() || range().first != range().second) return std::nullopt;
    return range().first;
  }
  [[nodiscard]] std::optional<bool> agrees() const {
    return steps == 0 ? std::nullopt : std::optional(measured == count * steps);
  }
  /// "12 x 2 + 1"; "uneven: 1 to 2 in 12 layers + 1" when layers differ.
  [[nodiscard]] std::string explained() const {
    if (by_layer.empty()) return fmt::format("{} outside the layers", outside);
    const auto [least, most] = range();
    std::string text = least == most
                           ? fmt::format("{} x {}", by_layer.size(), least)
                           : fmt::format("uneven: {} to {} in {} layers", least, most, by_layer.size());
    if (outside > 0) text += fmt::format(" + {}", outside);
    return text;
  }
};

const TypedColumns<Instances>& instance_columns() {
  static const TypedColumns<Instances> columns = {
      {"phase", "phase", &Instances::phase},
      {"kind", "op", &Instances::kind},
      {"kernel", "kernel", &Instances::kernel},
      {"count", "per step", &Instances::count},
      {"layers", [](const Instances& one) { return one.by_layer.size(); }},
      {"per_layer", &Instances::per_layer},
      {"rest", &Instances::outside},
      {"explained", "layers x per layer + rest", &Instances::explained},
      {"layers_of_model", &Instances::layers_of_model},
      {"observed", "observed", &Instances::measured},
      {"observed_steps", &Instances::steps},
      {"agrees", "agrees", &Instances::agrees}};
  return columns;
}

void add_ops(const RunData& run, const ViewOptions& options, View& view) {
  const std::vector<Kernel> kernels = kernels_of(run);
  Table table = kernel_columns().table(kernels, options.top, "kernels");
  if (table.rows.size() < kernels.size()) {
    double rest = 0;
    for (std::size_t i = table.rows.size(); i < kernels.size(); ++i)
      rest += kernels[i].time_share.value_or(0);
    table.notes = {fmt::format("{} more kernels take {:.1f}% together (--top 0 shows all)",
                               kernels.size() - table.rows.size(), 100 * rest)};
  }
  view.add("ops", "Kernels", std::move(table));
}

void add_instances(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const auto steps = static_cast<std::int64_t>(observed_steps(run));
  core::Grouped<std::pair<std::string, std::string>, Instances> kernels;  // by phase and kernel
  for (const TimedOp& timed : run.ops) {
    const std::string name = kernel_name(timed.op);
    Instances& kernel = kernels.at({timed.op.phase, name}, [&] {
      return Instances{.phase = timed.op.phase,
                       .kind = timed.op.kind,
                       .kernel = name,
                       .layers_of_model = run.run.config.integer("layers").value_or(0),
                       .steps = steps};
    });
    ++kernel.count;
    if (timed.time) kernel.measured += timed.time->instances;
    const auto layer = layer_of(timed.op.scope);
    ++(layer ? kernel.by_layer[*layer] : kernel.outside);
  }
  Table table = instance_columns().table(kernels.values());
  if (steps > 0) table.notes.push_back(fmt::format("observed: over {} steps", steps));
  view.add("instances", "Instances per step", std::move(table));
}

constexpr std::array kOpsViews = {
    ViewDef{.place = 40,
            .info = {.name = "ops",
                     .title = "Kernels",
                     .note = "Kernels by total time over all observed steps, per phase; the columns of an "
                             "nsys kernel summary.",
                     .needs = kNeedsOpTimes,
                     .is_on_page = true},
            .of_run = add_ops,
            .columns = [] { return columns_of(kernel_columns()); }},
    ViewDef{.place = 80,
            .info = {.name = "instances",
                     .title = "Instances explained",
                     .note = "How often each kernel runs in a step: layers x count per layer + the rest. "
                             "'uneven' marks counts that differ between layers.",
                     .needs = "the ops of a step (rooflm profile)"},
            .of_run = add_instances,
            .columns = [] { return columns_of(instance_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_ops() { return kOpsViews; }

}  // namespace rooflm::report
