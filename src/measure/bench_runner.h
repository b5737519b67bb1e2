// Timing the steps of an engine, and saying what the times were.
#pragma once

#include <functional>
#include <vector>

#include "core/statistics.h"
#include "engines/engine.h"

namespace rooflm::measure {

struct BenchOptions {
  int warmup = 2;  ///< steps that run first and are discarded
  int steps = 10;  ///< timed steps, at least 1
};

/// Wall time per phase of the timed steps, in seconds.
struct BenchResult {
  core::Summary forward, backward, optimizer, step;
  std::vector<engines::StepTimes> samples;
};

/// Runs the steps with no observer. `before_step(i)`, i from 0 over warm-up and timed steps, is called before
/// each and not timed: it writes the inputs.
BenchResult run_bench(engines::Engine& engine, const BenchOptions& options,
                      const std::function<void(int step)>& before_step);

}  // namespace rooflm::measure
