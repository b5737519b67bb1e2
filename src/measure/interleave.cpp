// Timing steps with and without an observer in turn, so that both see the same machine.
#include "measure/interleave.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "core/statistics.h"
#include "measure/sampling.h"

namespace rooflm::measure {
namespace {

/// Whether enough is known of the plain steps: the reason, or "".
std::string reason_to_stop(const std::vector<double>& plain, double elapsed_s,
                           const InterleaveOptions& options, bool& reached_precision) {
  if (plain.size() < static_cast<std::size_t>(options.min_steps)) return {};
  const core::Summary summary = core::summarise(plain);
  const double half = (summary.median_ci.high - summary.median_ci.low) / 2;
  if (half <= options.precision * summary.median) {
    reached_precision = true;
    return fmt::format("the interval of the median is within {:.2g} %", 100 * options.precision);
  }
  if (plain.size() >= static_cast<std::size_t>(options.max_steps)) {
    return fmt::format("{} steps", options.max_steps);
  }
  if (elapsed_s >= options.max_seconds) return fmt::format("{:.3g} s", options.max_seconds);
  return {};
}

}  // namespace

const char* name_of(StepKind kind) {
  constexpr std::array kNames = {"warmup", "plain", "observed"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::vector<double> InterleaveResult::step_seconds(StepKind kind) const {
  std::vector<double> seconds;
  for (const TimedStep& step : steps) {
    if (step.kind == kind) seconds.push_back(step.times.step_s);
  }
  return seconds;
}

InterleaveResult run_interleaved(engines::Engine& engine, engines::Observer& observer,
                                 const InterleaveOptions& options,
                                 const std::function<bool(int step, StepKind kind)>& before_step) {
  InterleaveResult result;
  int step = 0;
  const auto run = [&](StepKind kind) {
    if (!before_step(step, kind)) return false;
    const auto times = engine.run(kind == StepKind::observed ? &observer : nullptr);
    result.steps.push_back({.kind = kind, .times = times});
    ++step;
    return true;
  };
  result.stop_reason = "interrupted";
  for (int i = 0; i < options.warmup; ++i) {
    if (!run(StepKind::warmup)) return result;
  }
  const double start = now_s();
  for (bool plain_first = true;; plain_first = !plain_first) {
    if (!run(plain_first ? StepKind::plain : StepKind::observed)) return result;
    if (!run(plain_first ? StepKind::observed : StepKind::plain)) return result;
    const std::string reason = reason_to_stop(result.step_seconds(StepKind::plain), now_s() - start, options,
                                              result.reached_precision);
    if (reason.empty()) continue;
    result.stop_reason = reason;
    return result;
  }
}

}  // namespace rooflm::measure
