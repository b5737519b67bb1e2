// What is found of a run, and the run in two sentences.
#include "report/findings/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/findings/advice_recorded.h"
#include "report/model/operator_sums.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/runs/match_runs.h"

namespace rooflm::report {
namespace {

/// " (95% interval 12.9 ms to 13.4 ms, 20 steps)"; of fewer than six steps, for which there is no such
/// interval, " (5 steps)".
std::string sure_by(const RunData& run, const RunFigures& figures) {
  constexpr double kConfidence = 0.95;
  const std::size_t steps = run.seconds(kStep).size();
  const std::string count = core::format_count(steps, "step");
  if (figures.step_coverage < kConfidence) return " (" + count + ")";
  return fmt::format(" (95% interval {} to {}, {})", core::format_seconds(figures.step_low_s.value_or(0)),
                     core::format_seconds(figures.step_high_s.value_or(0)), count);
}

/// A few steps that differ have no median that says anything: their range does.
bool differ(const std::vector<double>& seconds) {
  constexpr std::size_t kFew = 5;
  constexpr double kAlike = 1.5;
  if (seconds.empty() || seconds.size() > kFew) return false;
  const auto [least, most] = std::ranges::minmax(seconds);
  return most > kAlike * least;
}

/// "A step takes 13.1 ms (95% interval ...)"; for a program that was only recorded "A recorded step takes
/// 59.3 ms on average, and kernels run for 17.6% of it"; "" if no step is known.
std::string step_sentence(const RunData& run) {
  const RunFigures figures = figures_of(run);
  if (figures.step_s) {
    const std::string time =
        differ(run.seconds(kStep))
            ? fmt::format("{} to {}", core::format_seconds(figures.step_low_s.value_or(0)),
                          core::format_seconds(figures.step_high_s.value_or(0)))
            : core::format_seconds(*figures.step_s);
    return fmt::format("A step takes {}", time) + sure_by(run, figures);
  }
  if (!is_foreign(run.run)) return "";
  const DeviceTimes& times = traced_kernels(run).times();
  const auto step_s = traced_step_s(times);
  if (!step_s) {
    if (!figures.traced_step_s) return "";
    const std::string time = core::format_seconds(*figures.traced_step_s);
    return figures.traced_steps == 1
               ? "The recorded step takes " + time
               : fmt::format("A recorded step takes {}, the median of {}", time, figures.traced_steps);
  }
  if (times.is_whole()) {
    return fmt::format(
        "No step with kernels is known; from the first kernel to the last it takes {}, and kernels run for "
        "{:.1f}% of it",
        core::format_seconds(*step_s),
        100 * (times.steps[0].exclusive_s + times.steps[0].shared_s) / *step_s);
  }
  double busy_s = 0;
  for (const DeviceStep& step : times.steps) {
    if (step.kind == kTraced) busy_s += step.exclusive_s + step.shared_s;
  }
  const std::size_t steps = times.count(kTraced);
  std::string text = "A recorded step takes ";
  if (steps == 1) {
    text = fmt::format("The recorded step takes {}", core::format_seconds(*step_s));
  } else {
    // The first step may be cut, and a slow one says nothing of the others.
    constexpr double kAlike = 0.01;
    const double median_s = phase_median(run, kStep, kTraced).value_or(*step_s);
    text += std::abs(median_s - *step_s) <= kAlike * median_s
                ? fmt::format("{} on average", core::format_seconds(*step_s))
                : fmt::format("{}, the median ({} on average)", core::format_seconds(median_s),
                              core::format_seconds(*step_s));
  }
  if (busy_s > 0)
    text += fmt::format(", and kernels run for {:.1f}% of it",
                        100 * busy_s / static_cast<double>(steps) / *step_s);
  return text;
}

/// "operators on the host take 2.56 ms, 71.7% of it in aten::mm": of a trace in which nothing ran on a
/// device;
/// "" for others.
std::string host_sentence(const RunData& run) {
  const auto has_work = [](const DeviceStep& step) { return step.exclusive_s + step.shared_s > 0; };
  if (!is_foreign(run.run) || std::ranges::any_of(traced_kernels(run).times().steps, has_work)) return "";
  const std::vector<OperatorSum> sums = operator_sums(run).by_name;
  std::int64_t all_ns = 0;
  for (const OperatorSum& sum : sums) all_ns += sum.self_ns;
  if (all_ns == 0) return "";
  return fmt::format("operators on the host take {}, {:.1f}% of it in {}",
                     core::format_seconds(core::kNano * static_cast<double>(all_ns)),
                     100 * static_cast<double>(sums.front().self_ns) / static_cast<double>(all_ns),
                     sums.front().name);
}

std::string headline_of(const RunData& run, const Glance& glance, const std::vector<Advice>& advice) {
  std::string text = step_sentence(run);
  if (const std::string host = host_sentence(run); !host.empty())
    return (text.empty() ? "No work of a device was traced" : text) + "; " + host + ".";
  if (text.empty()) return text;
  if (!glance.bound.parts.empty() && glance.bound.parts.front().share) {
    const GlancePart& most = glance.bound.parts.front();
    text +=
        most.name == kNoPrice
            ? fmt::format("; for {:.1f}% of the time in kernels, no roof is known", 100 * *most.share)
            : fmt::format("; {1:.1f}% of the time in kernels is bound by {0}", most.name, 100 * *most.share);
  }
  text += ".";
  if (advice.empty() || !advice.front().step_share) return text;
  const Advice& first = advice.front();
  return text + fmt::format(" The largest possible gain is {} ({:.1f}%): {}.",
                            core::format_seconds(first.gain_s), 100 * *first.step_share, first.subject);
}

}  // namespace

Findings findings_of(const RunData& run, std::vector<Advice> advice) {
  Findings found{.advice = std::move(advice), .why = why_of(run)};
  found.glance = glance_of(run, found.why);
  found.headline = headline_of(run, found.glance, found.advice);
  return found;
}

}  // namespace rooflm::report
