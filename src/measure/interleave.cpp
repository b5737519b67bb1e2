// Timing steps with and without an observer in turn, so that both see the same machine.
#include "measure/interleave.h"

#include <array>
#include <cstddef>

#include "measure/sampling.h"
#include "measure/stopping.h"

namespace rooflm::measure {

const char* name_of(StepKind kind) {
  constexpr std::array kNames = {"warmup", "plain", "observed"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::vector<engines::StepTimes> InterleaveResult::times_of(StepKind kind) const {
  std::vector<engines::StepTimes> times;
  for (const TimedStep& step : steps) {
    if (step.kind == kind) times.push_back(step.times);
  }
  return times;
}

std::vector<double> InterleaveResult::step_seconds(StepKind kind) const {
  std::vector<double> seconds;
  for (const engines::StepTimes& times : times_of(kind)) seconds.push_back(times.step_s);
  return seconds;
}

InterleaveResult run_interleaved(engines::Engine& engine, engines::Observer& observer,
                                 const InterleaveOptions& options,
                                 const std::function<bool(int step, StepKind kind)>& before_step) {
  InterleaveResult result;
  int step = 0;
  const auto run = [&](StepKind kind) {
    if (!before_step(step, kind)) return false;
    const auto times = whole_step(engine, kind == StepKind::observed ? &observer : nullptr);
    if (!times) return false;
    result.steps.push_back({.kind = kind, .times = *times});
    ++step;
    return true;
  };
  result.stop_reason = "interrupted";
  for (int i = 0; i < options.warmup; ++i) {
    if (!run(StepKind::warmup)) return result;
  }
  Stopping stopping({.precision = options.precision,
                     .min_samples = options.min_steps,
                     .max_samples = options.max_steps,
                     .max_seconds = options.max_seconds});
  const MachineLoad load;
  const double start = now_s();
  for (bool plain_first = true;; plain_first = !plain_first) {
    if (!run(plain_first ? StepKind::plain : StepKind::observed)) return result;
    if (!run(plain_first ? StepKind::observed : StepKind::plain)) return result;
    for (std::size_t i = result.steps.size() - 2; i < result.steps.size(); ++i) {
      const TimedStep& timed = result.steps[i];
      if (timed.kind == StepKind::plain) stopping.add(timed.times.step_s, now_s() - start);
    }
    if (!stopping.is_done()) continue;
    result.others_share = load.others_share();
    result.stop_reason = stopping.reason();
    result.reached_precision = stopping.reached_precision();
    return result;
  }
}

}  // namespace rooflm::measure
