// One configuration of a benchmark: from its options to a row of measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/ceilings.h"
#include "cli/devices.h"
#include "cli/model_options.h"
#include "cli/table.h"
#include "engines/engine.h"
#include "measure/bench_runner.h"

namespace rooflm::cli {

/// Thrown when SIGINT or SIGTERM asked to stop (train::StopSignals), before the next step.
struct Interrupted {
  int signal = 0;
};

struct BenchSettings {
  measure::BenchOptions steps;
  int threads = 0;
  std::uint64_t seed = 0;
  std::optional<double> memory_limit_bytes;  ///< absent: what the device has free
  bool measure_peak = true;
  SumOrder order = SumOrder::fixed;
};

/// One configuration, measured.
struct BenchOutcome {
  Row row;
  std::vector<engines::StepTimes> samples;  ///< of the timed steps
};

/// Builds the step, checks that it fits before anything large is allocated, initialises the weights from the
/// seed, runs it on random tokens and releases everything. Throws Interrupted. `status` of the row is
/// "success", "oom" (with needed_bytes and no times) or, on the device null, "planned" (no times). Quantities
/// as in docs/design.md.
BenchOutcome run_point(const Point& point, const BenchSettings& settings, Ceilings& ceilings);

}  // namespace rooflm::cli
