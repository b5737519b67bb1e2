// One step under hardware counters: what each op did, counted.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "trace/device_counters.h"

namespace rooflm::trace {

struct CountedStep {
  std::vector<CountedRange> ops;          ///< by op; id is its place in the program
  std::vector<engines::StepTimes> times;  ///< of the passes, for the record only: counting slows steps down
  std::vector<std::string> sets;          ///< "memory: 2 passes"
  std::vector<std::string> missing;       ///< "stalls: CUPTI: ...": sets that could not be counted
  [[nodiscard]] bool has_counted() const { return !sets.empty(); }
};

/// Repeats the step for each set and pass, submitted op by op, each op a range. `before_pass` makes the step
/// the same as the one before and says whether to go on. Kernels that run beside others in a replay run alone
/// here. A set that fails is left out; nothing throws but what the step throws.
CountedStep count_step(engines::Engine& engine, DeviceCounters& counters, std::span<const CounterSet> sets,
                       const std::function<bool()>& before_pass);

/// Counts one piece of work. Throws core::Unavailable.
std::vector<CountedValue> count_work(DeviceCounters& counters, const CounterSet& set,
                                     const std::function<void()>& work);

}  // namespace rooflm::trace
