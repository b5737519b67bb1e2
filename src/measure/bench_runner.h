// Timing the steps of an engine, and saying what the times were.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "engines/engine.h"
#include "measure/drift.h"
#include "measure/machine_load.h"

namespace rooflm::measure {

struct BenchOptions {
  int warmup = 2;        ///< steps that run first and are discarded
  int steps = 10;        ///< timed steps, at least 1; at most, where a precision is asked for
  double precision = 0;  ///< stop when the interval of the step's median is within this share of it; 0: never
  double max_seconds = std::numeric_limits<double>::infinity();  ///< of timed steps
};

/// Wall time per phase of the timed steps, in seconds.
struct BenchResult {
  core::Summary forward, backward, optimizer, step;
  core::Summary submit;  ///< the host's part of a step: until everything is submitted
  std::vector<engines::StepTimes> samples;
  std::string stop_reason;  ///< "interval within 1 %", "10 samples", "30 s", "interrupted"
  ClockChange clock;
  std::optional<double> others_share;  ///< see MachineLoad
};

/// Runs the steps with no observer. `before_step(i)`, i from 0 over warm-up and timed steps, is called before
/// each and not timed: it writes the inputs, or returns false to end here ("interrupted"), maybe without a
/// step. A step that is left (engines::StepLeft) ends it, too, and is not among the samples.
BenchResult run_bench(engines::Engine& engine, const BenchOptions& options,
                      const std::function<bool(int step)>& before_step);

}  // namespace rooflm::measure
