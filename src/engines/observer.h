// Observing an engine: what it submits and what it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "program/program.h"

namespace rooflm::engines {

/// When one op of a replayed step ended on the device.
struct ReplayedOp {
  std::size_t op = 0;    ///< in the program
  double start_s = 0;    ///< end of the previous op, relative to the start of the step
  double elapsed_s = 0;  ///< from start_s to the end of this op, including gaps between kernels
};

/// An op that overlapped the `compute` lane, by the host's monotonic clock.
struct OpBeside {
  std::size_t op = 0;  ///< in the program
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// Callbacks of Engine::run, in the order of its observer list. An engine without observers pays nothing.
/// Callbacks must not throw.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;
  /// Whether timestamps from a replay suffice. If so for all observers, the engine replays a step that was
  /// recorded with a timestamp after each op. Otherwise it submits the step op by op.
  [[nodiscard]] virtual bool wants_marks() const { return false; }
  /// Whether it handles ops that the host overlaps (Order::lanes); they are reported by `on_beside`. If not,
  /// the steps it observes are submitted in program order.
  [[nodiscard]] virtual bool sees_lanes() const { return false; }
  /// Before the first op of a step, and after the device has finished the last one.
  virtual void on_step_begin(const program::Program& /*program*/) {}
  virtual void on_step_end(const program::Program& /*program*/) {}
  /// Before and after the submission of program.ops[index]. Not called in replays, nor for overlapped ops.
  virtual void on_op_begin(const program::Program& program, std::size_t index) = 0;
  virtual void on_op_end(const program::Program& program, std::size_t index) = 0;
  /// The host has started or finished waiting for an overlapped op. The time since the last call belongs to
  /// no op.
  virtual void on_waited() {}
  /// The overlapped ops in the order in which they ran; after the last op, before on_step_end.
  virtual void on_beside(const program::Program& /*program*/, std::span<const OpBeside> /*ops*/) {}
  /// A transient tensor got or lost its storage; `live_bytes` is the total afterwards.
  virtual void on_allocate(const program::Program& /*program*/, program::TensorId /*id*/,
                           std::int64_t /*live_bytes*/) {}
  virtual void on_free(const program::Program& /*program*/, program::TensorId /*id*/,
                       std::int64_t /*live_bytes*/) {}
  /// All ops except setup ops, and when the device began, by the host's monotonic clock; after a replay has
  /// finished, before on_step_end.
  virtual void on_replayed(const program::Program& /*program*/, std::span<const ReplayedOp> /*ops*/,
                           std::int64_t /*begin_ns*/) {}
};

}  // namespace rooflm::engines
