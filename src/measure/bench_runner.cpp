// Timing the steps of an engine.
#include "measure/bench_runner.h"

#include <algorithm>
#include <iterator>

#include "measure/sampling.h"
#include "measure/stopping.h"

namespace rooflm::measure {

BenchResult run_bench(engines::Engine& engine, const BenchOptions& options,
                      const std::function<bool(int step)>& before_step) {
  constexpr int kFewest = 6;  // with fewer there is no 95% interval of a median
  BenchResult result;
  constexpr double kLongStep = 1;  // second
  const double warmup_start = now_s();
  bool is_long = false;  // one step takes longer than all may: one more is timed
  for (int i = 0; i < options.warmup && !is_long; ++i) {
    if (!before_step(i) || !whole_step(engine)) {
      result.stop_reason = "interrupted";
      return result;
    }
    is_long = now_s() - warmup_start > (i + 1) * std::max(options.max_seconds, kLongStep);
  }
  Stopping stopping({.precision = options.precision,
                     .min_samples = is_long ? 1 : std::min(kFewest, options.steps),
                     .max_samples = options.steps,
                     .max_seconds = options.max_seconds});
  result.clock.before_hz = clock_hz();
  const MachineLoad load;
  const double start = now_s();
  for (int i = options.warmup; !stopping.is_done(); ++i) {
    const auto times = before_step(i) ? whole_step(engine) : std::nullopt;
    if (!times) {
      result.stop_reason = "interrupted";
      break;
    }
    result.samples.push_back(*times);
    stopping.add(result.samples.back().step_s, now_s() - start);
  }
  result.clock.after_hz = clock_hz();
  result.others_share = load.others_share();
  if (result.stop_reason.empty()) result.stop_reason = stopping.reason();
  if (result.samples.empty()) return result;
  const auto summary_of = [&](double engines::StepTimes::*phase) {
    std::vector<double> seconds;
    std::transform(result.samples.begin(), result.samples.end(), std::back_inserter(seconds),
                   [&](const engines::StepTimes& times) { return times.*phase; });
    return core::summarise(seconds);
  };
  result.forward = summary_of(&engines::StepTimes::forward_s);
  result.backward = summary_of(&engines::StepTimes::backward_s);
  result.optimizer = summary_of(&engines::StepTimes::optimizer_s);
  result.step = summary_of(&engines::StepTimes::step_s);
  result.submit = summary_of(&engines::StepTimes::submit_s);
  return result;
}

}  // namespace rooflm::measure
