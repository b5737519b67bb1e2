// Steps under the hardware counters of this processor.
#pragma once

#include <vector>

#include "engines/engine.h"
#include "lab/step_inputs.h"
#include "measure/counters.h"
#include "record/rows.h"

namespace rooflm::lab {

/// Runs a few more steps; per step, what was counted, and beside it what the shapes say. `counters` are
/// available.
std::vector<record::Counter> count_steps(measure::Counters& counters, engines::Engine& engine,
                                         StepInputs& inputs);

}  // namespace rooflm::lab
