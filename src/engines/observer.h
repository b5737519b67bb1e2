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
  /// Around the submission of program.ops[index].
  virtual void on_op_begin(const program::Program& program, std::size_t index) = 0;
  virtual void on_op_end(const program::Program& program, std::size_t index) = 0;
  /// A transient tensor got or lost its storage; `live_bytes` afterwards.
  virtual void on_allocate(const program::Program& program, program::TensorId id,
                           std::int64_t live_bytes) = 0;
  virtual void on_free(const program::Program& program, program::TensorId id, std::int64_t live_bytes) = 0;
};

}  // namespace rooflm::engines
