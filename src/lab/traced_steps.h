// A few steps under a profiler of the device, kernel by kernel.
#pragma once

#include <cstdint>
#include <map>

#include "engines/engine.h"
#include "lab/job.h"
#include "lab/op_moments.h"
#include "lab/point.h"
#include "lab/step_inputs.h"
#include "record/writer.h"
#include "trace/activity_tracer.h"

namespace rooflm::lab {

struct TracedRun {
  std::int64_t next_step = 0;                           ///< the number of the step after these
  std::map<std::int64_t, std::int64_t> kernel_of_op{};  ///< trace::kernels_alone of the last traced step
  ObservedSteps observed{};  ///< of several ranks: steps that ran as they do untraced; none where one failed
};

/// Traces steps of a GPU that has run some already, and adds to the run their samples, lanes, activities, and
/// facts: what tracing cost, what was lost. Samples are "traced" (a few in a row, whose activities are kept;
/// then some with an "untraced" partner each, in alternating order, from which the cost comes), "in_order"
/// (nothing ran beside anything else; activities are kept, too), "inputs" (from the copies of their inputs
/// on, which other steps have behind them when they begin) and "allocations" (one, with what was allocated
/// and freed, which slows it down). Times of the last two are in no statistics. Where the device cannot be
/// traced it says why, in one line and in the fact "tracing", and adds nothing; where tracing fails half-way,
/// it says so and adds what came of the steps before. Replays are held until they are submitted
/// (engines::Start), "untraced" ones, too: the profiler makes that up to a millisecond longer. `first_step`
/// is the number of the first step. From then on the process is slower by a little (trace::open_cupti), so
/// this comes after what is to be timed plainly. `plain_step_s` is the step's time before: where the attached
/// profiler makes steps much longer, the fact "tracing_cost" says so (copy-engine collectives: 2.7 times).
/// `ranks` run as many steps alike, each its part; where one of them cannot be traced, none is.
TracedRun trace_steps(
    engines::Engine& engine, StepInputs& inputs, const Point& point, std::int64_t run,
    std::int64_t first_step, record::Writer& record, double plain_step_s = 0, const Ranks& ranks = nullptr,
    const trace::OpenTracer& open = [] { return trace::open_cupti(); });

/// Whether steps of the point can be traced at all: they run, on a GPU.
bool is_traceable(const Point& point);

}  // namespace rooflm::lab
