// Views of single kernels: a summary like that of nsys, and how often each runs explained by the layers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/kernels.h"
#include "report/summaries.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

Row kernel_row(const Kernel& kernel) {
  Row row;
  row.set("time_share", cell_of(kernel.time_share));
  row.set("total_s", kernel.total_s);
  row.set("instances", kernel.instances);
  row.set("launches", kernel.launches);
  row.set("avg_s", kernel.mean_s);
  row.set("med_s", kernel.median_s);
  row.set("min_s", kernel.min_s);
  row.set("max_s", kernel.max_s);
  row.set("std_s", kernel.std_s);
  row.set("phase", kernel.phase);
  row.set("class", kernel.op_class);
  row.set("name", kernel.name);
  row.set("library", kernel.library);
  row.set("variant", kernel.variant);
  return row;
}

/// Executions of one kernel in one step, by layer.
struct Instances {
  std::int64_t count = 0, outside = 0, measured = 0;
  std::map<std::int64_t, std::int64_t> by_layer;
};

/// "12 x 2 + 1"; "uneven: 1 to 2 in 12 layers + 1" when layers differ.
std::string explain(const Instances& kernel) {
  if (kernel.by_layer.empty()) return fmt::format("{} outside the layers", kernel.outside);
  const auto [least, most] = std::minmax_element(kernel.by_layer.begin(), kernel.by_layer.end(),
                                                 [](auto& a, auto& b) { return a.second < b.second; });
  const std::size_t layers = kernel.by_layer.size();
  std::string text = least->second == most->second
                         ? fmt::format("{} x {}", layers, least->second)
                         : fmt::format("uneven: {} to {} in {} layers", least->second, most->second, layers);
  if (kernel.outside > 0) text += fmt::format(" + {}", kernel.outside);
  return text;
}

Row instances_row(const std::pair<std::string, std::string>& key, const std::string& kind,
                  const Instances& kernel, const RunData& run, std::size_t steps) {
  const bool is_even = std::all_of(kernel.by_layer.begin(), kernel.by_layer.end(), [&](const auto& layer) {
    return layer.second == kernel.by_layer.begin()->second;
  });
  Row row;
  row.set("phase", key.first);
  row.set("kind", kind);
  row.set("kernel", key.second);
  row.set("count", kernel.count);
  row.set("layers", static_cast<std::int64_t>(kernel.by_layer.size()));
  row.set("per_layer", is_even && !kernel.by_layer.empty() ? Cell(kernel.by_layer.begin()->second) : Cell());
  row.set("rest", kernel.outside);
  row.set("explained", explain(kernel));
  row.set("layers_of_model", run.run.config.integer("layers").value_or(0));
  row.set("observed", kernel.measured);
  row.set("observed_steps", static_cast<std::int64_t>(steps));
  row.set("agrees",
          steps == 0 ? Cell() : Cell(kernel.measured == kernel.count * static_cast<std::int64_t>(steps)));
  return row;
}

void add_ops(const RunData& run, const ViewOptions& options, View& view) {
  const std::vector<Kernel> kernels = kernels_of(run);
  Table table{.columns = {{"time_share", "time %", Show::percent},
                          {"total_s", "total", Show::seconds, "s"},
                          {"instances", "instances"},
                          {"launches", "launches"},
                          {"avg_s", "avg", Show::seconds, "s"},
                          {"med_s", "med", Show::seconds, "s"},
                          {"min_s", "min", Show::seconds, "s"},
                          {"max_s", "max", Show::seconds, "s"},
                          {"std_s", "stddev", Show::seconds, "s"},
                          {"phase", "phase"},
                          {"name", "name"}},
              .rows = {},
              .notes = {}};
  if (std::ranges::any_of(kernels, [](const Kernel& kernel) { return !kernel.library.empty(); })) {
    table.columns.push_back({"library", "library"});
    table.columns.push_back({"variant", "variant"});
  }
  const std::size_t shown =
      options.top == 0 ? kernels.size() : std::min<std::size_t>(options.top, kernels.size());
  for (std::size_t i = 0; i < shown; ++i) table.rows.push_back(kernel_row(kernels[i]));
  if (shown < kernels.size()) {
    double rest = 0;
    for (std::size_t i = shown; i < kernels.size(); ++i) rest += kernels[i].time_share.value_or(0);
    table.notes.push_back(fmt::format("{} more kernels take {:.1f}% together (--top 0 shows all)",
                                      kernels.size() - shown, 100 * rest));
  }
  view.add("ops", "Kernels", std::move(table));
}

void add_instances(const RunData& run, const ViewOptions& /*options*/, View& view) {
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, Instances> kernels;
  std::map<std::pair<std::string, std::string>, std::string> kinds;
  for (const TimedOp& timed : run.ops) {
    const std::pair<std::string, std::string> key{timed.op.phase, kernel_name(timed.op)};
    const auto [entry, is_new] = kernels.try_emplace(key);
    if (is_new) {
      order.push_back(key);
      kinds[key] = timed.op.kind;
    }
    Instances& kernel = entry->second;
    ++kernel.count;
    if (timed.time) kernel.measured += timed.time->instances;
    const auto layer = layer_of(timed.op.scope);
    ++(layer ? kernel.by_layer[*layer] : kernel.outside);
  }
  Table table{.columns = {{"phase", "phase"},
                          {"kind", "op"},
                          {"kernel", "kernel"},
                          {"count", "per step"},
                          {"explained", "layers x per layer + rest"},
                          {"observed", "observed"},
                          {"agrees", "agrees"}},
              .rows = {},
              .notes = {}};
  const std::size_t steps = observed_steps(run);
  for (const auto& key : order) {
    table.rows.push_back(instances_row(key, kinds[key], kernels[key], run, steps));
  }
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
            .of_all = nullptr},
    ViewDef{.place = 80,
            .info = {.name = "instances",
                     .title = "Instances explained",
                     .note = "How often each kernel runs in a step: layers x count per layer + the rest. "
                             "'uneven' marks counts that differ between layers.",
                     .needs = "the ops of a step (rooflm profile)",
                     .is_on_page = false},
            .of_run = add_instances,
            .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_ops() { return kOpsViews; }

}  // namespace rooflm::report
