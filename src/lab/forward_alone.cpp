// The forward pass of a training step that does not fit.
#include "lab/forward_alone.h"

#include <limits>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/stop_signals.h"
#include "engines/engine.h"
#include "lab/memory_need.h"
#include "lab/run_record.h"
#include "lab/step_inputs.h"
#include "measure/bench_runner.h"
#include "measure/interleave.h"

namespace rooflm::lab {
namespace {

double planned_bytes(const Point& point, const program::Program& program) {
  for (const record::Fact& known : step_facts(point, program)) {
    if (known.key == "needed_bytes") return known.value.value_or(0);
  }
  return 0;
}

measure::BenchResult run_forward(const Point& point, const RunSettings& settings, program::Program program,
                                 backends::Backend& backend) {
  engines::TensorStore store(backend);
  engines::Engine engine(std::move(program), point.step.engine, store,
                         settings.memory_limit_bytes.value_or(0));
  engine.set_check([] { return !core::StopSignals::is_overdue(); });
  StepInputs inputs(engine, point, point.seed, settings.shards);
  const measure::BenchOptions options{.warmup = point.warmup,
                                      .steps = settings.max_steps,
                                      .precision = settings.precision,
                                      .max_seconds = settings.max_seconds};
  return measure::run_bench(engine, options, [&](int step) {
    if (core::StopSignals::received() != 0) return false;
    inputs.write(step);
    return true;
  });
}

}  // namespace

std::vector<record::Sample> time_forward_alone(const Point& point, const RunSettings& settings) {
  const backends::Provider& provider = backends::provider_of(point.device);
  const bool is_split = settings.ranks != nullptr || point.step.micro_batches > 1;
  if (point.phase != RunPhase::step || is_split || !provider.runs()) return {};
  Point alone = point;
  alone.phase = RunPhase::forward;
  std::vector<record::Sample> samples;
  try {
    program::Program program = program_of(alone);
    const auto backend = make_backend(alone);
    const MemoryNeed need = memory_need(program, planned_bytes(alone, program), provider, *backend);
    const double limit = settings.memory_limit_bytes.value_or(std::numeric_limits<double>::infinity());
    if (!need.fits(limit, backend->free_bytes())) return {};
    for (const engines::StepTimes& step :
         run_forward(alone, settings, std::move(program), *backend).samples) {
      samples.push_back({.step = static_cast<std::int64_t>(samples.size()),
                         .phase = "forward",
                         .seconds = step.forward_s,
                         .kind = measure::name_of(measure::StepKind::plain)});
    }
  } catch (const core::OutOfMemory&) {
    return {};
  } catch (const std::bad_alloc&) {
    return {};
  }
  return samples;
}

}  // namespace rooflm::lab
