// Laws of traced steps: each moment is counted once, kernels lie within their step, and those that the
// program says are there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/units.h"
#include "report/findings/advice.h"
#include "report/findings/advice_recorded.h"
#include "report/findings/step_causes.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/runs/match_runs.h"
#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

/// Two clocks, read within a few microseconds of each other.
constexpr Slack kTwoClocks{.share = 0.005, .absolute = 20e-6};
/// Medians: a step of a program that is longer has to be named in the fact "slow_steps".
constexpr double kSlowStep = 10;

std::string name_of_step(const DeviceStep& step) { return fmt::format("{} step {}", step.kind, step.step); }

/// `by_op`: of an engine that submits op by op, whose device waits for the host after its first mark of time.
/// `is_found`: its phases are sums of the same kernels, and those of the step before may run in it.
void check_step_times(const DeviceTimes& times, bool by_op, bool is_found, LawBook& laws) {
  for (const DeviceStep& step : times.steps) {
    const auto what = [&] { return name_of_step(step); };
    const double sum_s = step.exclusive_s + step.shared_s + step.idle_total_s();
    if (step.wall_s) {
      laws.equal("exclusive, shared and idle time add up to the step", what, sum_s, *step.wall_s, "s",
                 kTwoClocks);
    }
    if (is_found || step.kernels == 0 || !step.event_s || *step.event_s <= 0) continue;
    laws.equal("exclusive, shared and idle time add up to the device's own events", what,
               step.exclusive_s + step.shared_s + step.idle_within_s, *step.event_s, "s",
               by_op ? kOutsideOps : kTwoClocks);
  }
  if (times.steps.empty()) return;
  laws.equal("kernels lie within their step", "all steps", static_cast<double>(times.outside), 0, "kernels",
             kExact);
}

/// Steps of a program that is not ours are found: what was taken for one is held against all that ran.
void check_found_steps(const RunData& run, const DeviceTimes& times, LawBook& laws) {
  const record::Fact* stated = run.fact("steps");
  const ActivityNames names(run);
  double all_s = 0;
  double steps_s = 0;
  double outside = 0;
  for (const record::Activity& activity : run.activities) {
    if (!names.is_kernel(activity)) continue;
    const double seconds = static_cast<double>(activity.end_ns - activity.start_ns) * core::kNano;
    all_s += seconds;
    (activity.step ? steps_s : outside) += activity.step ? seconds : 1;
  }
  constexpr std::string_view kShare = "the device's time in steps is what the record states";
  constexpr std::string_view kOutside = "kernels outside steps are counted";
  if (stated == nullptr) {
    laws.not_judged(kShare, "the record is of an older rooflm");
  } else if (stated->value && all_s > 0) {
    laws.equal(kShare, "all steps", steps_s / all_s, *stated->value, "share", kRounding);
    laws.equal(kOutside, "all kernels", outside, run.number("kernels_of_no_step").value_or(0), "kernels",
               kExact);
  }
  std::vector<double> seconds;
  std::vector<const DeviceStep*> in_order;
  for (const DeviceStep& step : times.steps) {
    in_order.push_back(&step);
    if (step.kind == kTraced) seconds.push_back(step.span_s());
    laws.equal("busy and idle time add up to the step", [&] { return name_of_step(step); },
               step.exclusive_s + step.shared_s + step.idle_total_s(), step.span_s(), "s",
               {.share = 1e-9, .absolute = core::kNano});
  }
  std::ranges::sort(in_order, {}, &DeviceStep::begin_ns);
  for (std::size_t i = 1; i < in_order.size(); ++i) {
    laws.at_most(
        "steps do not overlap", [&] { return name_of_step(*in_order[i - 1]); },
        static_cast<double>(in_order[i - 1]->end_ns) * core::kNano,
        static_cast<double>(in_order[i]->begin_ns) * core::kNano, "s", kExact);
  }
  if (seconds.empty()) return;
  const double most_s = kSlowStep * core::median(seconds);
  const auto slow = std::ranges::count_if(seconds, [&](double s) { return s > most_s; });
  laws.equal("steps far beyond the median are named", "all steps", static_cast<double>(slow),
             run.number("slow_steps").value_or(0), "steps", kExact);
}

/// `is_found`: kernels of one step may run in the time of another one.
void check_kernel_times(const TracedKernels& kernels, bool is_found, LawBook& laws) {
  std::map<std::int64_t, double> busy_s;
  double all_s = 0;
  for (const TracedKernel& kernel : kernels.all()) {
    busy_s[kernel.activity->step.value_or(-1)] += kernel.part_s();
    all_s += kernel.part_s();
    const auto what = [&] { return fmt::format("activity {}", kernel.activity->id); };
    laws.at_most("a kernel's part of a step is within its duration", what, kernel.part_s(), kernel.seconds(),
                 "s", {.share = 1e-9, .absolute = core::kNano});
  }
  constexpr std::string_view kBusy = "kernels add up to the device's busy time";
  constexpr Slack kSum{.share = 1e-9, .absolute = core::kNano};
  double charged_s = 0;
  double of_classes_s = 0;
  for (const TracedKernel& kernel : kernels.all()) charged_s += kernel.charged_s();
  for (const DeviceStep& step : kernels.times().steps) of_classes_s += step.compute_s() + step.exposed_s;
  laws.equal("classes of kernels add up to the device's busy time", "all steps", charged_s, of_classes_s, "s",
             kSum);
  double of_steps_s = 0;
  for (const DeviceStep& step : kernels.times().steps) {
    of_steps_s += step.exclusive_s + step.shared_s;
    if (is_found) continue;
    laws.equal(
        kBusy, [&] { return name_of_step(step); }, busy_s[step.step], step.exclusive_s + step.shared_s, "s",
        kSum);
  }
  if (is_found) laws.equal(kBusy, "all steps", all_s, of_steps_s, "s", kSum);
  const std::vector<KernelSum> sums = kernel_sums(kernels);
  double shares = 0;
  for (const KernelSum& sum : sums) shares += sum.time_share.value_or(0);
  if (!sums.empty())
    laws.equal("shares of a total add up to 1", "traced kernels", shares, 1, "share", kRounding);
}

/// Kernels of one name against what they have to do: their roofs, and the peak of their products' dtype,
/// which is the highest rate known for it: kernels of a GPU that is idle in between run at the clock of a
/// burst. Their calls are one after the other or beside each other, and no time is shorter than that of its
/// work.
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
    if (ceiling.unit != "flop/s" || ceiling.device != run.setting("device")) continue;
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

/// Causes of the view why, and gains of advice.
void check_causes(const RunData& run, LawBook& laws) {
  const StepCauses step = step_causes(run);
  if (step.steps > 0) {
    double sum_s = 0;
    for (const StepCause& cause : step.causes) sum_s += cause.seconds;
    laws.equal("causes add up to the step", step.what(), sum_s, step.step_s, "s",
               {.share = 1e-9, .absolute = core::kNano});
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
  check_step_times(kernels.times(), run.config.text("engine") == "eager", is_foreign(run), laws);
  if (is_foreign(run)) check_found_steps(data, kernels.times(), laws);
  check_kernel_times(kernels, is_foreign(run), laws);
  check_kernel_roofs(data, kernels, record.ceilings(), laws);
  const auto lost = data.number("trace_lost");
  if (lost && *lost == 0) check_instances(data, kernels, laws);
}

}  // namespace rooflm::report
