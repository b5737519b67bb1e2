// The step of a measured run once more, under profilers of the device.
#include <cstdint>
#include <new>

#include "core/error.h"
#include "engines/engine.h"
#include "engines/tensor_store.h"
#include "lab/counted_run.h"
#include "lab/notes.h"
#include "lab/run.h"
#include "lab/step_inputs.h"
#include "lab/traced_steps.h"
#include "trace/op_recorder.h"

namespace rooflm::lab {

std::int64_t look_inside(const Point& point, const RunSettings& settings, const RunOutcome& outcome,
                         record::Writer& record) {
  constexpr int kWarmUp = 3;
  if (outcome.status != "success" || !is_traceable(point) || !(settings.trace || settings.count)) {
    return outcome.steps;
  }
  note("tracing and counting {}", describe(point));
  TracedRun traced{.next_step = outcome.steps};
  try {
    const auto backend = make_backend(point);
    engines::TensorStore store(*backend);
    engines::Engine engine(program_of(point), point.step.engine, store,
                           settings.memory_limit_bytes.value_or(0));
    StepInputs inputs(engine, point, point.seed, settings.shards);
    for (int i = 0; i < kWarmUp; ++i) {
      inputs.write(i);
      engine.run();
    }
    // Makes the recording in which nothing runs beside anything else.
    trace::OpRecorder recorder(engine.program(), *backend, 1);
    recorder.set_step(traced.next_step);
    engine.run(&recorder);
    if (settings.trace) {
      traced = trace_steps(engine, inputs, point, outcome.run, traced.next_step, record, outcome.step_s);
    }
    if (settings.count) count_run(engine, inputs, point, outcome.run, traced, record);
  } catch (const core::OutOfMemory& error) {
    note("  not traced: {}", error.what());
  } catch (const std::bad_alloc&) {
    note("  not traced: out of memory");
  }
  record.commit();
  return traced.next_step;
}

}  // namespace rooflm::lab
