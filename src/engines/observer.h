// Watching an engine: what it submits and what it allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace rooflm::engines {

/// Called by Engine::run when one is attached; with none attached nothing is paid. Callbacks must not throw.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Before the first op of a step, and after the last one was waited for.
  virtual void on_step_begin(const program::Program& /*program*/) {}
  virtual void on_step_end(const program::Program& /*program*/) {}
  /// Around the submission of program.ops[index].
  virtual void on_op_begin(const program::Program& program, std::size_t index) = 0;
  virtual void on_op_end(const program::Program& program, std::size_t index) = 0;
  /// A transient tensor got or lost its storage; `live_bytes` afterwards.
  virtual void on_allocate(const program::Program& program, program::TensorId id,
                           std::int64_t live_bytes) = 0;
  virtual void on_free(const program::Program& program, program::TensorId id, std::int64_t live_bytes) = 0;
};

}  // namespace rooflm::engines
