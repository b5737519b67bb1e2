// Timing the steps of an engine.
#include "measure/bench_runner.h"

#include <algorithm>
#include <iterator>

namespace rooflm::measure {

BenchResult run_bench(engines::Engine& engine, const BenchOptions& options,
                      const std::function<void(int step)>& before_step) {
  BenchResult result;
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    before_step(i);
    const engines::StepTimes times = engine.run();
    if (i >= options.warmup) result.samples.push_back(times);
  }
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
  return result;
}

}  // namespace rooflm::measure
