// Kernels of a run: sums and statistics over their executions.
#include "report/model/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/statistics.h"
#include "core/units.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

/// A kernel and the device times of its executions.
struct Executions {
  Kernel kernel;
  std::vector<double> seconds;
  std::set<std::string> variants{};  ///< of its ops
};

void summarise(Executions& executions) {
  Kernel& kernel = executions.kernel;
  const std::vector<double>& seconds = executions.seconds;
  kernel.instances = static_cast<std::int64_t>(seconds.size());
  kernel.mean_s = kernel.total_s / static_cast<double>(seconds.size());
  kernel.std_s = core::sample_std(seconds);
  kernel.median_s = core::median(seconds);
  const auto [least, most] = std::ranges::minmax_element(seconds);
  kernel.min_s = *least;
  kernel.max_s = *most;
  if (executions.variants.size() > 1) kernel.variant = fmt::format("{} variants", executions.variants.size());
}

}  // namespace

std::string kernel_name(const record::Op& op) { return op.kernel.empty() ? op.kind : op.kernel; }

std::vector<Kernel> kernels_of(const RunData& run) {
  std::vector<Executions> all;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  std::unordered_map<std::int64_t, std::pair<std::size_t, std::int64_t>> place_of_op;  // kernel, launches
  for (const TimedOp& timed : run.ops) {
    const record::Op& op = timed.op;
    const auto [entry, is_new] = index.try_emplace({op.phase, kernel_name(op)}, all.size());
    if (is_new) {
      all.push_back({.kernel = {.phase = op.phase,
                                .name = kernel_name(op),
                                .op_class = op.op_class,
                                .library = op.library,
                                .variant = op.variant},
                     .seconds = {}});
    }
    all[entry->second].variants.insert(op.variant);
    place_of_op[op.op] = {entry->second, op.launches};
  }
  double all_s = 0;
  for (const record::Event& event : run.events) {
    const auto found = place_of_op.find(event.op);
    if (found == place_of_op.end()) continue;
    Executions& executions = all[found->second.first];
    executions.seconds.push_back(static_cast<double>(event.device_ns) * core::kNano);
    executions.kernel.total_s += executions.seconds.back();
    executions.kernel.launches += found->second.second;
    all_s += executions.seconds.back();
  }
  std::vector<Kernel> kernels;
  for (Executions& executions : all) {
    if (executions.seconds.empty()) continue;
    summarise(executions);
    executions.kernel.time_share = ratio_of(executions.kernel.total_s, all_s);
    kernels.push_back(std::move(executions.kernel));
  }
  std::ranges::stable_sort(kernels, [](const Kernel& a, const Kernel& b) { return a.total_s > b.total_s; });
  return kernels;
}

}  // namespace rooflm::report
