// Timing steps with and without an observer in turn, so that both see the same machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "measure/machine_load.h"

namespace rooflm::measure {

struct InterleaveOptions {
  int warmup = 2;           ///< steps that run first and are not counted
  double precision = 0.01;  ///< stop when the interval of the median is within this share of it, to each side
  int min_steps = 6;        ///< of each kind
  int max_steps = 200;      ///< of each kind
  double max_seconds = 30.0;  ///< in all, after warm-up
};

enum class StepKind : std::uint8_t { warmup, plain, observed };
/// "warmup", "plain" or "observed".
const char* name_of(StepKind kind);

struct TimedStep {
  StepKind kind = StepKind::plain;
  engines::StepTimes times;
};

struct InterleaveResult {
  std::vector<TimedStep> steps;  ///< in the order in which they ran
  std::string stop_reason;       ///< "interval within 1 %", "200 samples", "30 s"
  bool reached_precision = false;
  std::optional<double> others_share;  ///< see MachineLoad; after warm-up
  [[nodiscard]] std::vector<engines::StepTimes> times_of(StepKind kind) const;
  [[nodiscard]] std::vector<double> step_seconds(StepKind kind) const;
};

/// Plain and observed steps in pairs, whose order alternates. End-to-end times are those of plain steps.
/// `before_step(i)`, i from 0, writes the inputs and is not timed; when it returns false, measuring ends
/// there ("interrupted"), as it does with a step that is left (engines::StepLeft). `observer` sees every
/// second of the steps after warm-up.
InterleaveResult run_interleaved(engines::Engine& engine, engines::Observer& observer,
                                 const InterleaveOptions& options,
                                 const std::function<bool(int step, StepKind kind)>& before_step);

}  // namespace rooflm::measure
