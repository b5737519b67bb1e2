// The same kernel with and without another kernel running.
#include "report/model/contention.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/statistics.h"
#include "core/units.h"

namespace rooflm::report {
namespace {

constexpr double kAlone = 0.01;    ///< most overlap of one that ran alone
constexpr double kTogether = 0.5;  ///< least of one that did not
using Extents = std::array<std::int64_t, 3>;

/// What makes two executions the same work.
using Problem = std::tuple<const KernelName*, Extents, Extents, std::string, std::string>;

struct ContentionGroup {
  const TracedKernel* first = nullptr;
  std::vector<double> alone, together;
  std::vector<double> overlapped_in_step;  ///< durations in steps as the engine runs them
  std::map<std::string, std::size_t> beside;
};

std::string most_of(const std::map<std::string, std::size_t>& counts) {
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return most == counts.end() ? "" : most->first;
}

}  // namespace

std::vector<Contention> contention_of(const TracedKernels& kernels) {
  std::map<Problem, ContentionGroup> groups;
  const bool has_ops =
      std::ranges::any_of(kernels.all(), [](const auto& kernel) { return kernel.op != nullptr; });
  for (const TracedKernel& kernel : kernels.all()) {
    if (has_ops && kernel.op == nullptr) continue;  // marks of the backend
    const std::string shapes = kernel.op == nullptr ? "" : kernel.op->op.shapes;
    const std::string part = kernel.op == nullptr ? "" : kernel.op->op.phase + " " + kernel.op->part;
    ContentionGroup& group = groups[{kernel.name, kernel.launch->grid, kernel.launch->block, shapes, part}];
    group.first = group.first == nullptr ? &kernel : group.first;
    const double overlap = kernel.time.overlap();
    if (overlap <= kAlone) group.alone.push_back(kernel.seconds());
    if (overlap >= kTogether) {
      group.together.push_back(kernel.seconds());
      const TracedKernel* other = kernel.time.beside ? kernels.find(*kernel.time.beside) : nullptr;
      if (other != nullptr) ++group.beside[std::string(other->kernel_class)];
    }
    if (overlap > kAlone && kernel.step_kind == kTraced) group.overlapped_in_step.push_back(kernel.seconds());
  }
  std::vector<Contention> all;
  for (const auto& [problem, group] : groups) {
    if (group.alone.empty() || group.together.empty()) continue;
    Contention one{.kernel = group.first->name->short_name,
                   .kernel_class = std::string(group.first->kernel_class),
                   .part = group.first->op == nullptr ? "" : group.first->op->part,
                   .phase = group.first->op == nullptr ? "" : group.first->op->op.phase,
                   .beside = most_of(group.beside),
                   .alone = group.alone.size(),
                   .together = group.together.size(),
                   .alone_s = core::median(group.alone),
                   .together_s = core::median(group.together)};
    if (one.alone_s <= 0) continue;
    one.slowdown = one.together_s / one.alone_s;
    for (const double seconds : group.overlapped_in_step) one.lost_s += seconds - one.alone_s;
    if (kernels.steps() > 0) one.lost_s /= static_cast<double>(kernels.steps());
    all.push_back(std::move(one));
  }
  std::ranges::stable_sort(all, [](const Contention& a, const Contention& b) { return a.lost_s > b.lost_s; });
  return all;
}

std::optional<OverlapGain> overlap_gain(const DeviceTimes& times) {
  std::vector<double> in_order;
  std::vector<double> overlapped;
  std::vector<double> shared;
  for (const DeviceStep& step : times.steps) {
    const double span_s = static_cast<double>(step.last_ns - step.first_ns) * core::kNano;
    if (step.kind == kInOrder) in_order.push_back(span_s);
    if (step.kind != kTraced) continue;
    overlapped.push_back(span_s);
    shared.push_back(step.shared_s);
  }
  if (in_order.empty() || overlapped.empty()) return std::nullopt;
  return OverlapGain{.in_order_s = core::median(in_order),
                     .overlapped_s = core::median(overlapped),
                     .shared_s = core::mean(shared)};
}

}  // namespace rooflm::report
