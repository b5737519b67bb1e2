// Views of single kernels: a summary like that of nsys, and how often each runs explained by the layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/summaries.h"
#include "report/view_makers.h"

namespace rooflm::report {
namespace {

constexpr double kNano = 1e-9;

struct Kernel {
  std::string phase, name, op_class;
  std::vector<double> seconds;  ///< device time of every execution
  double total_s = 0;
};

std::string kernel_name(const record::Op& op) { return op.kernel.empty() ? op.kind : op.kernel; }

/// The executions of each kernel per phase, in the order in which the program names them.
std::vector<Kernel> kernels_of(const RunData& run) {
  std::vector<Kernel> kernels;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  std::unordered_map<std::int64_t, std::size_t> kernel_of_op;
  for (const TimedOp& timed : run.ops) {
    const auto [entry, is_new] = index.try_emplace({timed.op.phase, kernel_name(timed.op)}, kernels.size());
    if (is_new) {
      kernels.push_back({.phase = timed.op.phase,
                         .name = kernel_name(timed.op),
                         .op_class = timed.op.op_class,
                         .seconds = {}});
    }
    kernel_of_op[timed.op.op] = entry->second;
  }
  for (const record::Event& event : run.events) {
    const auto found = kernel_of_op.find(event.op);
    if (found == kernel_of_op.end()) continue;
    Kernel& kernel = kernels[found->second];
    kernel.seconds.push_back(static_cast<double>(event.device_ns) * kNano);
    kernel.total_s += kernel.seconds.back();
  }
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.seconds.empty(); });
  return kernels;
}

Row kernel_row(Kernel& kernel, double all_s) {
  const double count = static_cast<double>(kernel.seconds.size());
  const double mean_s = kernel.total_s / count;
  double squares = 0;
  for (const double value : kernel.seconds) squares += (value - mean_s) * (value - mean_s);
  std::sort(kernel.seconds.begin(), kernel.seconds.end());
  const std::size_t middle = kernel.seconds.size() / 2;
  const double median_s = kernel.seconds.size() % 2 == 1
                              ? kernel.seconds[middle]
                              : (kernel.seconds[middle - 1] + kernel.seconds[middle]) / 2;
  Row row;
  row.set("time_share", cell_of(ratio_of(kernel.total_s, all_s)));
  row.set("total_s", kernel.total_s);
  row.set("instances", static_cast<std::int64_t>(kernel.seconds.size()));
  row.set("avg_s", mean_s);
  row.set("med_s", median_s);
  row.set("min_s", kernel.seconds.front());
  row.set("max_s", kernel.seconds.back());
  row.set("std_s", count > 1 ? std::sqrt(squares / (count - 1)) : 0.0);
  row.set("phase", kernel.phase);
  row.set("class", kernel.op_class);
  row.set("name", kernel.name);
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

}  // namespace

void add_ops(const RunData& run, const ViewOptions& options, View& view) {
  std::vector<Kernel> kernels = kernels_of(run);
  double all_s = 0;
  for (const Kernel& kernel : kernels) all_s += kernel.total_s;
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return a.total_s > b.total_s; });
  Table table{.columns = {{"time_share", "time %", Show::percent, "share"},
                          {"total_s", "total", Show::seconds, "s"},
                          {"instances", "instances"},
                          {"avg_s", "avg", Show::seconds, "s"},
                          {"med_s", "med", Show::seconds, "s"},
                          {"min_s", "min", Show::seconds, "s"},
                          {"max_s", "max", Show::seconds, "s"},
                          {"std_s", "stddev", Show::seconds, "s"},
                          {"phase", "phase"},
                          {"name", "name"}},
              .rows = {},
              .notes = {}};
  const std::size_t shown =
      options.top == 0 ? kernels.size() : std::min<std::size_t>(options.top, kernels.size());
  for (std::size_t i = 0; i < shown; ++i) table.rows.push_back(kernel_row(kernels[i], all_s));
  if (shown < kernels.size()) {
    double rest_s = 0;
    for (std::size_t i = shown; i < kernels.size(); ++i) rest_s += kernels[i].total_s;
    table.notes.push_back(fmt::format("{} more kernels take {:.1f}% together (--top 0 shows all)",
                                      kernels.size() - shown, 100 * rest_s / all_s));
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

}  // namespace rooflm::report
