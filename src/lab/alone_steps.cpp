// Steps in which each op is submitted alone and waited for.
#include "lab/alone_steps.h"

#include <fmt/format.h>

#include <vector>

#include "core/statistics.h"
#include "core/stop_signals.h"
#include "lab/run_record.h"
#include "trace/alone_recorder.h"

namespace rooflm::lab {

std::int64_t time_alone(engines::Engine& engine, backends::Backend& backend, StepInputs& inputs,
                        double plain_s, std::int64_t run, std::int64_t first_step, record::Writer& record) {
  constexpr int kSteps = 5;
  trace::AloneRecorder recorder(engine.program(), backend);
  std::vector<record::Sample> samples;
  std::vector<double> step_s;
  for (int i = 0; i < kSteps && core::StopSignals::received() == 0; ++i) {
    const std::int64_t step = first_step + i;
    inputs.write(static_cast<int>(step));
    const engines::StepTimes times = engine.run(&recorder);
    // No times of phases: the device waits between ops.
    samples.push_back({.step = step, .phase = "step", .seconds = times.step_s, .kind = record::kAloneSource});
    step_s.push_back(times.step_s);
  }
  if (samples.empty()) return first_step;
  record.add(run, samples);
  record.add(run, recorder.counters());
  const double cost = core::median(step_s) / plain_s - 1;
  if (plain_s > 0) {
    record.add(
        run, record::Fact{.key = "alone_cost",
                          .value = cost,
                          .unit = {},
                          .text = fmt::format("submitting each op alone and waiting for it changes a step by "
                                              "{:+.0f} % (medians of {} such steps and of the plain steps)",
                                              100 * cost, step_s.size())});
  }
  return first_step + static_cast<std::int64_t>(samples.size());
}

}  // namespace rooflm::lab
