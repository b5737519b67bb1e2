// Laws of traced steps: each moment is counted once, kernels lie within their step, and those that the
// program says are there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "report/advice.h"
#include "report/advice_recorded.h"
#include "report/laws.h"
#include "report/match_runs.h"
#include "report/step_causes.h"
#include "report/summaries.h"
#include "report/traced_kernels.h"

namespace rooflm::report {
namespace {

/// Two clocks, read within a few microseconds of each other.
constexpr Slack kTwoClocks{.share = 0.005, .absolute = 20e-6};
constexpr double kVerifyDeviceNano = 1e-9;

std::string name_of_step(const DeviceStep& step) { return fmt::format("{} step {}", step.kind, step.step); }

/// `by_op`: of an engine that submits op by op, whose device waits for the host after its first mark of time.
void check_step_times(const DeviceTimes& times, bool by_op, LawBook& laws) {
  for (const DeviceStep& step : times.steps) {
    const auto what = [&] { return name_of_step(step); };
    const double sum_s = step.exclusive_s + step.shared_s + step.idle_total_s();
    if (step.wall_s) {
      laws.equal("exclusive, shared and idle time add up to the step", what, sum_s, *step.wall_s, "s",
                 kTwoClocks);
    }
    if (step.kernels == 0 || !step.event_s || *step.event_s <= 0) continue;
    laws.equal("exclusive, shared and idle time add up to the device's own events", what,
               step.exclusive_s + step.shared_s + step.idle_within_s, *step.event_s, "s",
               by_op ? kOutsideOps : kTwoClocks);
  }
  if (times.steps.empty()) return;
  laws.equal("kernels lie within their step", "all steps", static_cast<double>(times.outside), 0, "kernels",
             kExact);
}

void check_kernel_times(const TracedKernels& kernels, LawBook& laws) {
  std::map<std::int64_t, double> busy_s;
  for (const TracedKernel& kernel : kernels.all()) {
    busy_s[kernel.activity->step.value_or(-1)] += kernel.part_s();
    const auto what = [&] { return fmt::format("activity {}", kernel.activity->id); };
    laws.at_most("a kernel's part of a step is within its duration", what, kernel.part_s(), kernel.seconds(),
                 "s", {.share = 1e-9, .absolute = kVerifyDeviceNano});
  }
  double charged_s = 0;
  double of_steps_s = 0;
  for (const TracedKernel& kernel : kernels.all()) charged_s += kernel.charged_s();
  for (const DeviceStep& step : kernels.times().steps) of_steps_s += step.compute_s() + step.exposed_s;
  laws.equal("classes of kernels partition the time in which the device was busy", "all steps", charged_s,
             of_steps_s, "s", {.share = 1e-9, .absolute = kVerifyDeviceNano});
  for (const DeviceStep& step : kernels.times().steps) {
    laws.equal("kernels add up to the time in which the device was busy", [&] { return name_of_step(step); },
               busy_s[step.step], step.exclusive_s + step.shared_s, "s",
               {.share = 1e-9, .absolute = kVerifyDeviceNano});
  }
  const std::vector<KernelSum> sums = kernel_sums(kernels);
  double shares = 0;
  for (const KernelSum& sum : sums) shares += sum.time_share.value_or(0);
  if (!sums.empty())
    laws.equal("shares of a total add up to 1", "traced kernels", shares, 1, "share", kRounding);
}

/// Causes of the view why, and gains of advice.
void check_causes(const RunData& run, LawBook& laws) {
  const StepCauses step = step_causes(run);
  if (step.steps > 0) {
    double sum_s = 0;
    for (const StepCause& cause : step.causes) sum_s += cause.seconds;
    laws.equal("causes add up to the step", step.what(), sum_s, step.step_s, "s",
               {.share = 1e-9, .absolute = kVerifyDeviceNano});
  }
  double gains_s = 0;
  for (const Advice& advice : advise(run, std::numeric_limits<std::size_t>::max())) {
    laws.at_most("no gain is more than the time that it would remove", advice.subject, advice.gain_s,
                 advice.time_s, "s", kRounding);
    if (!advice.is_alternative) gains_s += advice.gain_s;
  }
  const auto step_s = is_foreign(run.run) ? advised_step_s(run, traced_kernels(run).times()) : std::nullopt;
  if (step_s && gains_s > 0)
    laws.at_most("all gains together are within the step", "advice", gains_s, *step_s, "s", kRounding);
}

/// Kernels of one op in every traced step, where its kernel says how many they are.
void check_instances(const RunData& run, const TracedKernels& kernels, LawBook& laws) {
  const std::vector<std::int64_t> unknown_ops = ops_of_unknown_launches(run);
  const std::set<std::int64_t> unknown(unknown_ops.begin(), unknown_ops.end());
  std::unordered_map<std::int64_t, std::int64_t> seen;
  for (const TracedKernel& kernel : kernels.all()) {
    if (is_launch_of_op(kernel)) ++seen[kernel.op->op.op];
  }
  const auto steps = static_cast<std::int64_t>(kernels.times().steps.size());
  for (const TimedOp& timed : run.ops) {
    if (unknown.contains(timed.op.op)) continue;
    laws.equal(
        "kernels seen are those that the op launches",
        [&] { return fmt::format("op {} {} ({})", timed.op.op, timed.op.name, timed.op.kernel); },
        static_cast<double>(seen[timed.op.op]), static_cast<double>(timed.op.launches * steps), "kernels",
        kExact);
  }
}

}  // namespace

void check_device(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const RunData data = load_run(record, run);
  check_causes(data, laws);
  const TracedKernels& kernels = traced_kernels(data);
  if (kernels.times().steps.empty()) return;
  check_step_times(kernels.times(), run.config.text("engine") == "eager", laws);
  check_kernel_times(kernels, laws);
  const auto lost = data.number("trace_lost");
  if (lost && *lost == 0) check_instances(data, kernels, laws);
}

}  // namespace rooflm::report
