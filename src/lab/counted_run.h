// The step of a run under a GPU's hardware counters, in the record.
#pragma once

#include <cstdint>

#include "engines/engine.h"
#include "lab/point.h"
#include "lab/step_inputs.h"
#include "lab/traced_steps.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Repeats the step as often as the counters of its GPU need (trace/counter_metrics.h), and writes what each
/// op counted (and the kernel that it was, where `traced` knows it to be that one alone), the passes as
/// samples of kind "counted" from step `traced.next_step` on, and as facts how many there were
/// ("counter_passes") and how known work counts ("counter_check_...": counted / known). The weights stay as
/// they are: the learning rate is 0. Where counters cannot be read, "counters_missing" says why and what to
/// allow, and so does one line on standard error; nothing throws but what the step throws.
void count_run(engines::Engine& engine, StepInputs& inputs, const Point& point, std::int64_t run,
               const TracedRun& traced, record::Writer& record);

}  // namespace rooflm::lab
