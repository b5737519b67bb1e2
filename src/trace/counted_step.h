// Counts one step with hardware counters, op by op.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "trace/device_counters.h"

namespace rooflm::trace {

struct CountedStep {
  std::vector<CountedRange> ops;  ///< by op; id is the op's index in the program
  /// Of the counted passes, for the record only: counting slows steps down.
  std::vector<engines::StepTimes> times;
  std::vector<std::string> sets;     ///< "memory: 2 passes"
  std::vector<std::string> missing;  ///< "stalls: CUPTI: ...": sets that could not be counted
  [[nodiscard]] bool has_counted() const { return !sets.empty(); }
};

/// Repeats the step for each set and pass, submitted op by op, with a range per op. `before_pass` resets the
/// step to the same state and says whether to go on. Kernels that overlap in a replay run alone here. A set
/// that fails is left out; only exceptions of the step itself are thrown.
CountedStep count_step(engines::Engine& engine, DeviceCounters& counters, std::span<const CounterSet> sets,
                       const std::function<bool()>& before_pass);

/// Counts one piece of work. Throws core::Unavailable.
std::vector<CountedValue> count_work(DeviceCounters& counters, const CounterSet& set,
                                     const std::function<void()>& work);

}  // namespace rooflm::trace
