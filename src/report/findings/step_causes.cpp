// Where the time of a traced step goes.
#include "report/findings/step_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "report/findings/why.h"
#include "report/model/traced_kernels.h"

namespace rooflm::report {
namespace {

constexpr const char* kCompute = "compute";
constexpr const char* kTalking = "collectives";
constexpr double kLeastRest = 1e-9;  // of sums

void add_sorted(StepCauses& all, std::vector<StepCause> causes) {
  std::erase_if(causes, [](const StepCause& cause) { return cause.seconds <= 0; });
  std::ranges::stable_sort(causes, std::greater<>(), &StepCause::seconds);
  all.causes.insert(all.causes.end(), causes.begin(), causes.end());
}

std::vector<StepCause> computing_causes(const TracedKernels& kernels, const DeviceTimes& times,
                                        double compute_s) {
  const auto steps = static_cast<double>(times.count(kTraced));
  std::map<std::string_view, double> classes;
  double tail_s = 0;
  for (const auto& [index, time] : times.kernels) {
    const TracedKernel* kernel = kernels.find(index);
    if (kernel == nullptr || kernel->step_kind != kTraced || time.is_collective) continue;
    const double charged_s = time.charged_ns * 1e-9 / steps;
    const double empty_s = tail_share(*kernel->launch) * charged_s;
    tail_s += empty_s;
    classes[kernel->kernel_class] += charged_s - empty_s;
  }
  // A kernel of another step may run in the time of this one.
  double known_s = tail_s;
  for (const auto& [name, seconds] : classes) known_s += seconds;
  const double rest_s = compute_s - known_s;
  if (rest_s < 0) {
    tail_s *= compute_s / known_s;
    for (auto& [name, seconds] : classes) seconds *= compute_s / known_s;
  } else if (rest_s > kLeastRest * compute_s) {
    classes["of other steps"] += rest_s;
  }
  std::vector<StepCause> causes;
  for (const auto& [name, seconds] : classes) causes.push_back({kCompute, std::string(name), seconds, ""});
  causes.push_back({kCompute, std::string(title_of(Cause::tail)), tail_s, std::string(mend_of(Cause::tail))});
  return causes;
}

std::vector<StepCause> talking_causes(const ExposedCollectives& exposed) {
  constexpr const char* kOverlap = "overlap of collectives with computation, fewer and larger messages";
  constexpr const char* kBalance = "ranks that arrive together: equal work, no rank that stalls";
  if (exposed.source == WaitSource::unknown) {
    return {{kTalking, "exposed", exposed.all_s, std::string(kOverlap) + "; " + kBalance}};
  }
  return {{kTalking, "waiting", exposed.waiting_s, kBalance},
          {kTalking, "transfer", exposed.transfer_s, kOverlap}};
}

}  // namespace

std::string StepCauses::of_which() const {
  return device.empty() ? "" : fmt::format(" of {}, which of {} devices is idle least", device, devices);
}

double StepCauses::of(std::string_view group) const {
  double sum_s = 0;
  for (const StepCause& cause : causes) sum_s += cause.group == group ? cause.seconds : 0;
  return sum_s;
}

std::string_view mend_of_idle(std::string_view cause) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, kIdleCauses> kMends = {
      {{"host", "fewer launches: fused kernels, a CUDA graph, a larger batch"},
       {"stall", "the host's other work moved off the critical path (--view gaps shows what that is)"},
       {"sync", "results that are read later, fewer synchronizations"},
       {"copy", "copies that overlap kernels: pinned memory, a separate stream"},
       {"dependency", "longer kernels, or a CUDA graph: these are gaps from one kernel to the next"},
       {"queued", "events that come earlier, a device that no other process uses"},
       {"tracing", "nothing: it is the cost of recording"},
       {"unknown", "a trace that has the calls of the CUDA runtime: it says who waited for whom"}}};
  const auto found = std::ranges::find(kMends, cause, &std::pair<std::string_view, std::string_view>::first);
  return found == kMends.end() ? "" : found->second;
}

StepCauses step_causes(const RunData& run) {
  StepCauses all;
  const TracedKernels& kernels = traced_kernels(run);
  const std::vector<std::string> devices = devices_of(run, kernels);
  DeviceTimes of_device;
  double least_idle_s = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < devices.size() && devices.size() > 1; ++i) {
    DeviceTimes one = device_times(run, devices[i]);
    double idle_s = 0;
    for (const DeviceStep& step : one.steps) idle_s += step.kind == kTraced ? step.idle_total_s() : 0;
    if (idle_s >= least_idle_s) continue;
    least_idle_s = idle_s;
    of_device = std::move(one);
    all.device = devices[i];
    all.devices = devices.size();
  }
  const DeviceTimes& times = all.device.empty() ? kernels.times() : of_device;
  const bool has_kernels = std::ranges::any_of(
      times.steps, [](const DeviceStep& step) { return step.kind == kTraced && step.kernels > 0; });
  if (!has_kernels) return all;
  all.steps = times.count(kTraced);
  all.is_whole = times.is_whole();
  const auto steps = static_cast<double>(all.steps);
  std::vector<StepCause> idle;
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    const std::string name(name_of(static_cast<IdleCause>(i)));
    double sum_s = 0;
    for (const DeviceStep& step : times.steps) sum_s += step.kind == kTraced ? step.idle_s.at(i) / steps : 0;
    idle.push_back({"idle", name, sum_s, std::string(mend_of_idle(name))});
  }
  double compute_s = 0;
  for (const DeviceStep& step : times.steps) {
    if (step.kind != kTraced) continue;
    all.step_s += step.span_s() / steps;
    compute_s += step.compute_s() / steps;
  }
  const ExposedCollectives exposed = exposed_collectives(run, times);
  all.waits = exposed.source;
  add_sorted(all, computing_causes(kernels, times, compute_s));
  add_sorted(all, talking_causes(exposed));
  add_sorted(all, std::move(idle));
  return all;
}

}  // namespace rooflm::report
