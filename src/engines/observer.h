// Watching an engine: what it submits and what it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "program/program.h"

namespace rooflm::engines {

/// When one op of a replayed step ended on the device.
struct ReplayedOp {
  std::size_t op = 0;    ///< in the program
  double start_s = 0;    ///< end of the op before it, from the beginning of the step
  double elapsed_s = 0;  ///< from there to the end of this op: gaps between kernels are in it
};

/// An op that ran beside those of the lane compute, by the monotonic clock of the host.
struct OpBeside {
  std::size_t op = 0;  ///< in the program
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// Called by Engine::run for each observer that is attached; with none attached nothing is paid. All
/// observers see everything, in the order of the list. Callbacks must not throw.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;
  /// Whether the times of a replay are enough for it: with such observers only, an engine replays a step that
  /// it recorded with a mark of time after each op. Otherwise it submits the step op by op.
  [[nodiscard]] virtual bool wants_marks() const { return false; }
  /// Whether it understands ops that run beside others where the host runs them (Order::lanes): it is told of
  /// them in `on_beside`. Otherwise a step that it sees is submitted in the order of the program.
  [[nodiscard]] virtual bool sees_lanes() const { return false; }
  /// Before the first op of a step, and after the last one was waited for.
  virtual void on_step_begin(const program::Program& /*program*/) {}
  virtual void on_step_end(const program::Program& /*program*/) {}
  /// Around the submission of program.ops[index]. Not called in a replay, nor for ops that run beside.
  virtual void on_op_begin(const program::Program& program, std::size_t index) = 0;
  virtual void on_op_end(const program::Program& program, std::size_t index) = 0;
  /// The host has waited for an op beside, or began to: what has passed is of no op.
  virtual void on_waited() {}
  /// After the last op, before on_step_end: those that ran beside, in their order.
  virtual void on_beside(const program::Program& /*program*/, std::span<const OpBeside> /*ops*/) {}
  /// A transient tensor got or lost its storage; `live_bytes` afterwards.
  virtual void on_allocate(const program::Program& /*program*/, program::TensorId /*id*/,
                           std::int64_t /*live_bytes*/) {}
  virtual void on_free(const program::Program& /*program*/, program::TensorId /*id*/,
                       std::int64_t /*live_bytes*/) {}
  /// After a replay was waited for, before on_step_end: all ops but setup ones, and when the device began, by
  /// the monotonic clock of the host.
  virtual void on_replayed(const program::Program& /*program*/, std::span<const ReplayedOp> /*ops*/,
                           std::int64_t /*begin_ns*/) {}
};

}  // namespace rooflm::engines
