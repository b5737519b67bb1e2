// Steps in which each op is submitted alone and waited for.
#pragma once

#include <cstdint>

#include "backends/backend.h"
#include "engines/engine.h"
#include "lab/step_inputs.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Runs such steps of an engine that has run before, and adds to the run: the wall time of each op
/// (trace::AloneRecorder; of one rank: collectives would wait for the others), the steps as samples of kind
/// record::kAloneSource from `first_step` on, and the fact "alone_cost", by which share they are longer than
/// `plain_s`. On devices that replay steps this is the only wall time of an op. Returns the number of the
/// next step.
std::int64_t time_alone(engines::Engine& engine, backends::Backend& backend, StepInputs& inputs,
                        double plain_s, std::int64_t run, std::int64_t first_step, record::Writer& record);

}  // namespace rooflm::lab
