// The kernels of traced steps, and their sums.
#include "report/model/traced_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/ratio.h"
#include "core/statistics.h"
#include "core/units.h"
#include "report/model/kernels.h"

namespace rooflm::report {
namespace {

/// Layers of the ops of one kernel.
struct Layers {
  std::map<std::int64_t, std::int64_t> by_layer;
  std::int64_t rest = 0;
  [[nodiscard]] std::string explain() const {
    if (by_layer.empty()) return std::to_string(rest);
    const std::int64_t first = by_layer.begin()->second;
    const bool is_even =
        std::ranges::all_of(by_layer, [&](const auto& layer) { return layer.second == first; });
    std::string text = is_even ? fmt::format("{} layers x {}", by_layer.size(), first)
                               : fmt::format("{} layers, uneven", by_layer.size());
    if (rest > 0) text += fmt::format(" + {}", rest);
    return text;
  }
};

void summarise(KernelSum& sum, const std::vector<double>& seconds, std::size_t steps) {
  sum.instances = seconds.size();
  sum.per_step = core::ratio_of(static_cast<double>(sum.instances), static_cast<double>(steps)).value_or(0);
  sum.mean_s = core::mean(seconds);
  sum.median_s = core::median(seconds);
  sum.std_s = core::sample_std(seconds);
  const auto [least, most] = std::ranges::minmax_element(seconds);
  sum.min_s = *least;
  sum.max_s = *most;
}

/// How many kernels each op has in traced steps.
std::unordered_map<std::int64_t, std::int64_t> kernels_by_op(const TracedKernels& kernels) {
  std::unordered_map<std::int64_t, std::int64_t> count;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind == kTraced && is_launch_of_op(kernel)) ++count[kernel.op->op.op];
  }
  return count;
}

}  // namespace

bool is_launch_of_op(const TracedKernel& kernel) {
  if (kernel.op == nullptr) return false;
  return kernel.kernel_class != "copy" || kernel.op->op.op_class == "copy";
}

TracedKernels::TracedKernels(const RunData& run) : times_(device_times(run)) {
  const ActivityNames names(run);
  // Few names, ops and launches differ: to look at each of them takes longer than all else.
  std::map<std::pair<const KernelName*, const TimedOp*>, std::string_view> classes;
  std::string_view last_extra;
  const LaunchShape* last_launch = nullptr;
  std::vector<std::string_view> whole;  // names, once each
  std::vector<KernelName*> parsed;
  all_.reserve(times_.kernels.size());
  for (const auto& [index, time] : times_.kernels) {
    const record::Activity& activity = run.activities[index];
    const std::string& text = names.text(activity);
    const auto [name, is_new] = names_.try_emplace(activity.name);
    if (is_new) {
      name->second = parse_kernel_name(text);
      whole.push_back(text);
      parsed.push_back(&name->second);
    }
    TracedKernel kernel{.index = index, .activity = &activity, .name = &name->second, .text = &text};
    if (activity.op) kernel.op = run.find_op(*activity.op);
    kernel.price = run.price_of(activity);
    const auto [of_kernel, is_new_pair] = classes.try_emplace({kernel.name, kernel.op});
    if (is_new_pair) {
      const record::Op* op = kernel.op == nullptr ? nullptr : &kernel.op->op;
      of_kernel->second = *classes_.insert(class_of_kernel(*kernel.name, op)).first;
    }
    kernel.kernel_class = of_kernel->second;
    if (last_launch == nullptr || last_extra != activity.extra) {
      const auto [launch, is_new_launch] = launches_.try_emplace(activity.extra);
      if (is_new_launch) launch->second = parse_launch(activity.extra);
      last_extra = activity.extra;
      last_launch = &launch->second;
    }
    kernel.launch = last_launch;
    kernel.time = time;
    if (const DeviceStep* step = times_.find(activity.step.value_or(-1))) kernel.step_kind = step->kind;
    all_.push_back(kernel);
  }
  std::vector<std::string> shorts = distinct_short_names(whole);
  for (std::size_t i = 0; i < parsed.size(); ++i) parsed[i]->short_name = std::move(shorts[i]);
}

std::vector<std::string> devices_of(const RunData& run, const TracedKernels& kernels) {
  std::unordered_map<std::int64_t, const record::Lane*> lanes;
  for (const record::Lane& lane : run.lanes) lanes[lane.lane] = &lane;
  std::set<std::string> devices;
  for (const TracedKernel& kernel : kernels.all()) {
    const auto lane = lanes.find(kernel.activity->lane);
    devices.insert(lane == lanes.end() ? "" : lane->second->device);
  }
  return {devices.begin(), devices.end()};
}

const TracedKernels& traced_kernels(const RunData& run) {
  const KeptKernels& kept = run.kept;
  const bool is_same = kept.activities == run.activities.size() && kept.ops == run.ops.size();
  if (kept.kernels == nullptr || !is_same) {
    kept.kernels = std::make_shared<const TracedKernels>(run);
    kept.activities = run.activities.size();
    kept.ops = run.ops.size();
  }
  return *kept.kernels;
}

const TracedKernel* TracedKernels::find(std::size_t index) const {
  const auto found = std::ranges::lower_bound(all_, index, {}, &TracedKernel::index);
  return found == all_.end() || found->index != index ? nullptr : &*found;
}

std::vector<KernelSum> kernel_sums(const TracedKernels& kernels, std::string_view phase) {
  struct NamedKernels {
    KernelSum sum;
    std::vector<double> seconds;
    double longest_s = -1;
    double roof_s = 0, with_roof_s = 0;
  };
  std::map<std::pair<const KernelName*, std::string_view>, NamedKernels> groups;
  double busy_s = 0;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced) continue;
    if (!phase.empty() && (kernel.op == nullptr || kernel.op->op.phase != phase)) continue;
    NamedKernels& group = groups[{kernel.name, kernel.kernel_class}];
    KernelSum& sum = group.sum;
    if (group.seconds.empty()) {
      sum.text = *kernel.text;
      sum.name = *kernel.name;
      sum.kernel_class = kernel.kernel_class;
    }
    group.seconds.push_back(kernel.seconds());
    sum.total_s += kernel.seconds();
    sum.exclusive_s += static_cast<double>(kernel.time.exclusive_ns) * core::kNano;
    sum.shared_s += kernel.time.shared_ns * core::kNano;
    busy_s += kernel.part_s();
    if (kernel.price != nullptr && kernel.price->roof_s) {
      group.roof_s += *kernel.price->roof_s;
      group.with_roof_s += kernel.seconds();
    }
    if (kernel.seconds() > group.longest_s) {
      group.longest_s = kernel.seconds();
      sum.occupancy = kernel.launch->occupancy;
      sum.occupancy_limit = kernel.launch->occupancy_limit;
      sum.waves = kernel.launch->waves;
    }
  }
  std::vector<KernelSum> sums;
  for (auto& [key, group] : groups) {
    summarise(group.sum, group.seconds, kernels.steps());
    group.sum.time_share = core::ratio_of(group.sum.exclusive_s + group.sum.shared_s, busy_s);
    if (group.with_roof_s > 0) group.sum.roof_share = group.roof_s / group.with_roof_s;
    sums.push_back(std::move(group.sum));
  }
  std::ranges::stable_sort(sums, [](const KernelSum& a, const KernelSum& b) {
    return std::pair(-a.exclusive_s - a.shared_s, a.text) < std::pair(-b.exclusive_s - b.shared_s, b.text);
  });
  return sums;
}

std::string gemm_role(const RunData& run, const record::Op& op) {
  if (op.phase != "backward") return op.phase;
  constexpr std::string_view kGradient = "d_";
  if (!op.name.starts_with(kGradient)) return op.recomputed ? "recomputed" : "backward";
  const std::string of = op.name.substr(kGradient.size());
  const auto tensor = std::ranges::find(run.tensors, of, &record::Tensor::name);
  const bool is_weight = tensor != run.tensors.end() && tensor->role == "weight";
  return is_weight ? "weight gradient" : "input gradient";
}

std::optional<bool> SeenInstances::agrees() const {
  if (!predicted) return std::nullopt;
  return seen == static_cast<double>(*predicted);
}

std::vector<std::int64_t> ops_of_unknown_launches(const RunData& run) {
  std::vector<std::int64_t> ops;
  const std::string text = run.text("unknown_launches");
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++at) {
    std::int64_t op = 0;
    const auto [after, error] = std::from_chars(at, end, op);
    if (error == std::errc()) ops.push_back(op);
    at = std::find(after, end, ',');
  }
  return ops;
}

std::vector<SeenInstances> seen_instances(const RunData& run, const TracedKernels& kernels) {
  if (kernels.steps() == 0) return {};
  const std::vector<std::int64_t> unknown_ops = ops_of_unknown_launches(run);
  const std::set<std::int64_t> unknown(unknown_ops.begin(), unknown_ops.end());
  const auto per_op = kernels_by_op(kernels);
  std::vector<SeenInstances> all;
  std::vector<Layers> layers;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const TimedOp& timed : run.ops) {
    const record::Op& op = timed.op;
    const auto [entry, is_new] = index.try_emplace({op.phase, kernel_name(op)}, all.size());
    if (is_new) {
      all.push_back({.phase = op.phase, .op_kind = op.kind, .kernel = kernel_name(op), .predicted = 0});
      layers.emplace_back();
    }
    SeenInstances& seen = all[entry->second];
    ++seen.ops;
    if (unknown.contains(op.op)) seen.predicted.reset();
    if (seen.predicted) *seen.predicted += op.launches;
    const auto found = per_op.find(op.op);
    const double count = found == per_op.end() ? 0 : static_cast<double>(found->second);
    seen.seen += count;
    const auto layer = layer_of(op.scope);
    ++(layer ? layers[entry->second].by_layer[*layer] : layers[entry->second].rest);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].explained = layers[i].explain();
    all[i].seen /= static_cast<double>(kernels.steps());
  }
  return all;
}

}  // namespace rooflm::report
