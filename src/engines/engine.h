// Running a program on a backend: when ops run and where their tensors live.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "compile/passes/plan_memory.h"
#include "compile/recipe.h"
#include "engines/observer.h"
#include "engines/tensor_store.h"
#include "program/program.h"

namespace rooflm::engines {

/// Time of one run by phase, in seconds. Phases may interleave (the chunked loss); each op's time goes to its
/// own phase, taken where the phase changes: on a device its own time, so that they add up to a little less
/// than `step_s`, the wall time from the first submission until the device is done. Where a recorded step is
/// replayed, what runs beside the backward pass is in its time; `optimizer_s` is what comes after.
struct StepTimes {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  double step_s = 0;
  double submit_s = 0;  ///< of step_s, until everything is submitted: what the host is kept busy
};

/// What a program needs, before anything is allocated.
struct MemoryNeed {
  std::int64_t persistent_bytes = 0;  ///< inputs, weights, optimizer state, results
  std::int64_t transient_bytes = 0;   ///< fused: the arena; eager: most bytes alive at once
  [[nodiscard]] std::int64_t total() const { return persistent_bytes + transient_bytes; }
};
MemoryNeed memory_need(const program::Program& program, compile::EngineKind kind);

/// One program, ready to run again and again. Kernels are made and (fused) memory is allocated in the
/// constructor; a fused engine allocates nothing in `run`.
class Engine {
 public:
  /// Binds weights and optimizer state in `store`; inputs and results are the engine's own, see `io`. Throws
  /// core::OutOfMemory, naming what it needs, when that is more than `memory_limit_bytes` (0: what the
  /// backend has free) plus what the store already holds; core::Unavailable when the backend lacks a kernel.
  Engine(program::Program program, compile::EngineKind kind, TensorStore& store,
         double memory_limit_bytes = 0);

  /// Runs the setup ops; call it after weights were written.
  void setup();
  /// Runs all ops but setup ones, waits for the device, returns the times. The first step is submitted op by
  /// op, so that a device can name the op that fails; from the second on a fused engine without observer,
  /// or with one that offers a place for a recording, records the step, where the device can, and replays it.
  StepTimes run(Observer* observer = nullptr);

  [[nodiscard]] const program::Program& program() const { return program_; }
  [[nodiscard]] const passes::MemoryPlan& plan() const { return plan_; }
  /// Weights and optimizer state.
  [[nodiscard]] TensorStore& store() const { return *store_; }
  /// Inputs ("tokens", "targets", "hyper") to write before a run, results ("loss", "grad_norm", "logits") to
  /// read after.
  [[nodiscard]] TensorStore& io() { return io_; }
  /// Largest transient memory so far: the arena, or the most bytes alive at once.
  [[nodiscard]] std::int64_t peak_transient_bytes() const { return peak_transient_bytes_; }

 private:
  struct Step {
    backends::Kernel kernel;
    std::vector<void*> in, out;
    std::vector<program::TensorId> frees;  ///< eager: tensors whose last use this is
  };
  void check_memory(double limit_bytes) const;
  void bind_tensors();
  void make_steps();
  void resolve(std::size_t index);
  void find_phases();
  backends::Recording* recording_for(Observer* observer);
  void submit(Observer* observer, const std::vector<program::Phase>& phases);
  void submit_recorded(Observer& observer);
  void run_op(std::size_t index, Observer* observer);
  void free_after(std::size_t index, Observer* observer);

  program::Program program_;
  compile::EngineKind kind_;
  TensorStore* store_;
  TensorStore io_;
  passes::MemoryPlan plan_;
  backends::Allocation arena_;
  std::vector<backends::Allocation> on_demand_;  ///< eager: one per tensor while it is alive
  std::vector<void*> address_;                   ///< by TensorId
  std::vector<Step> steps_;
  /// Of the stretches between one mark of the stopwatch and the next: in the order of the program, and in a
  /// recording, where ops that run beside others end no stretch.
  std::vector<program::Phase> phases_, recorded_phases_;
  std::unique_ptr<backends::Stopwatch> stopwatch_;
  std::unique_ptr<backends::Recording> recording_;
  bool has_run_ = false;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_transient_bytes_ = 0;
};

}  // namespace rooflm::engines
