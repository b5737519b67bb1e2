// When the ops of some steps ran, from whatever observed them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "measure/interleave.h"
#include "program/program.h"
#include "trace/op_recorder.h"
#include "trace/step_trace.h"

namespace rooflm::lab {

/// One op in one step, by the monotonic clock of the host.
struct OpMoment {
  std::int64_t step = 0, op = 0, start_ns = 0, end_ns = 0;
};

struct ObservedStep {
  std::int64_t step = 0;
  double seconds = 0;
};

/// Steps of one rank, and what ran in them, in the order in which it was submitted or began.
struct ObservedSteps {
  std::vector<ObservedStep> steps{};
  std::vector<OpMoment> moments{};
  [[nodiscard]] double mean_s() const;
};

/// The observed steps of a run, by its recorder.
ObservedSteps observed_steps(const trace::OpRecorder& recorder, const measure::InterleaveResult& result);

/// Of a moment of the monotonic clock.
std::int64_t nanoseconds_of(std::chrono::steady_clock::time_point moment);

/// Of traced steps: an op runs from the beginning of its first kernel or copy to the end of the last. Of a
/// message that is sent only the copy counts: what then waits for the receiver holds nothing up. `epoch_ns`:
/// zero of the rows.
std::vector<OpMoment> moments_of(const trace::TraceRows& rows, std::int64_t epoch_ns,
                                 const program::Program& program, const std::vector<ObservedStep>& steps);

}  // namespace rooflm::lab
