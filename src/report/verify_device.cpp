// Laws of traced steps: each moment is counted once, kernels lie within their step, and those that the
// program says are there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/laws.h"
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

/// Kernels of one name against what they have to do: their roofs, and the peak of their products' dtype.
/// Their calls are one after the other or beside each other, and no time is shorter than that of its work.
void check_kernel_roofs(const RunData& run, const TracedKernels& kernels,
                        const std::vector<record::Ceiling>& ceilings, LawBook& laws) {
  struct Sum {
    double roof_s = 0, seconds = 0, flop = 0, flop_s = 0;
  };
  std::map<std::pair<std::string_view, std::string>, Sum> sums;  // by name and dtype
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.price == nullptr) continue;
    const record::KernelWork& work = kernel.price->work;
    Sum& sum = sums[{*kernel.text, work.dtype}];
    if (kernel.price->roof_s) {
      sum.roof_s += *kernel.price->roof_s;
      sum.seconds += kernel.seconds();
    }
    if (work.needed_flop > 0) {
      sum.flop += work.needed_flop;
      sum.flop_s += kernel.seconds();
    }
  }
  std::map<std::string, double> peaks;
  for (const record::Ceiling& ceiling : ceilings) {
    if (ceiling.what != "matmul" || ceiling.device != run.setting("device")) continue;
    peaks[ceiling.dtype] = std::max({peaks[ceiling.dtype], ceiling.value, ceiling.ci_high});
  }
  for (const auto& [key, sum] : sums) {
    const auto what = [&, name = key.first] { return fmt::format("kernel {}", name); };
    if (sum.seconds > 0)
      laws.at_most("no kernel beats its roof", what, sum.roof_s, sum.seconds, "s", kClockNoise);
    const auto peak = peaks.find(key.second);
    if (sum.flop_s > 0 && peak != peaks.end()) {
      laws.at_most("no kernel beats the peak of its dtype", what, sum.flop / sum.flop_s, peak->second,
                   "flop/s", {.share = kClockNoise.share});
    }
  }
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
  const TracedKernels kernels(data);
  if (kernels.times().steps.empty()) return;
  check_step_times(kernels.times(), run.config.text("engine") == "eager", laws);
  check_kernel_times(kernels, laws);
  check_kernel_roofs(data, kernels, record.ceilings(), laws);
  const auto lost = data.number("trace_lost");
  if (lost && *lost == 0) check_instances(data, kernels, laws);
}

}  // namespace rooflm::report
