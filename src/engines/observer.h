// Watching an engine: what it submits and what it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/backend.h"
#include "program/program.h"

namespace rooflm::engines {

/// Called by Engine::run when one is attached; with none attached nothing is paid. Callbacks must not throw,
/// but for those of recordings.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
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

  /// Where an engine that replays its steps may keep one with this observer's marks in it; nullptr for an
  /// observer that wants to see every step submitted op by op. It is of use to one engine.
  virtual std::unique_ptr<backends::Recording>* recording() { return nullptr; }
  /// While a step is recorded: before its first op, and after program.ops[index]. What is put between them is
  /// done again in every replay. They may throw.
  virtual void on_record_begin(const program::Program& /*program*/) {}
  virtual void on_op_recorded(const program::Program& /*program*/, std::size_t /*index*/) {}
  /// After a replay was waited for, before on_step_end.
  virtual void on_replayed(const program::Program& /*program*/) {}
};

}  // namespace rooflm::engines
