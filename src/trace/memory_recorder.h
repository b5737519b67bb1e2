// The memory of one step: which tensor was allocated or freed at which op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "engines/observer.h"
#include "record/rows.h"

namespace rooflm::trace {

/// Observes an engine that allocates op by op (eager). Persistent tensors come first, at op -1.
class MemoryRecorder : public engines::Observer {
 public:
  explicit MemoryRecorder(const program::Program& program);
  [[nodiscard]] const std::vector<record::MemoryEvent>& events() const { return events_; }
  /// Allocations of the step so far.
  [[nodiscard]] std::int64_t allocations() const { return allocations_; }

  void on_step_begin(const program::Program& program) override;
  void on_op_begin(const program::Program& program, std::size_t index) override;
  void on_op_end(const program::Program& program, std::size_t index) override;
  void on_allocate(const program::Program& program, program::TensorId id, std::int64_t live_bytes) override;
  void on_free(const program::Program& program, program::TensorId id, std::int64_t live_bytes) override;

 private:
  /// The op of events before it has begun: outputs are allocated first.
  static constexpr std::int64_t kPending = -2;
  std::vector<record::MemoryEvent> events_;
  std::size_t persistent_events_ = 0;
  std::int64_t live_bytes_ = 0;
  std::int64_t persistent_bytes_ = 0;
  std::int64_t op_ = -1;  ///< the current or last op
  std::int64_t allocations_ = 0;
};

/// The same for an engine with a planned arena: the plan's lifetimes, op by op. A tensor that is written in
/// place of another counts from the op that writes it.
std::vector<record::MemoryEvent> planned_memory_events(const program::Program& program,
                                                       const passes::MemoryPlan& plan);

}  // namespace rooflm::trace
