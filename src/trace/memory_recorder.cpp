// The memory of one step: which tensor was allocated or freed at which op.
#include "trace/memory_recorder.h"

namespace rooflm::trace {
namespace {

using program::Program;
using program::TensorId;

/// Appends an event and updates the running sum.
void append(std::vector<record::MemoryEvent>& events, std::int64_t& live_bytes, std::int64_t op, TensorId id,
            std::int64_t bytes) {
  live_bytes += bytes;
  events.push_back({.seq = static_cast<std::int64_t>(events.size()),
                    .op = op,
                    .tensor = id,
                    .bytes = bytes,
                    .live_bytes = live_bytes});
}

void append_persistent(std::vector<record::MemoryEvent>& events, std::int64_t& live_bytes,
                       const Program& program) {
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const program::Tensor& tensor = program.tensors[id];
    if (program::is_persistent(tensor.role)) {
      append(events, live_bytes, -1, static_cast<TensorId>(id), tensor.own_bytes());
    }
  }
}

}  // namespace

MemoryRecorder::MemoryRecorder(const Program& program) {
  append_persistent(events_, live_bytes_, program);
  persistent_events_ = events_.size();
  persistent_bytes_ = live_bytes_;
}

void MemoryRecorder::on_step_begin(const Program& /*program*/) {
  events_.resize(persistent_events_);
  live_bytes_ = persistent_bytes_;
  op_ = -1;
  allocations_ = 0;
}

void MemoryRecorder::on_op_begin(const Program& /*program*/, std::size_t /*index*/) {}

void MemoryRecorder::on_op_end(const Program& /*program*/, std::size_t index) {
  op_ = static_cast<std::int64_t>(index);
  for (auto event = events_.rbegin(); event != events_.rend() && event->op == kPending; ++event) {
    event->op = op_;
  }
}

void MemoryRecorder::on_allocate(const Program& program, TensorId id, std::int64_t /*live_bytes*/) {
  ++allocations_;
  append(events_, live_bytes_, kPending, id, program.tensor(id).bytes());
}

void MemoryRecorder::on_free(const Program& program, TensorId id, std::int64_t /*live_bytes*/) {
  append(events_, live_bytes_, op_, id, -program.tensor(id).bytes());
}

std::vector<record::MemoryEvent> planned_memory_events(const Program& program,
                                                       const passes::MemoryPlan& plan) {
  struct Birth {
    TensorId tensor, predecessor;  ///< the tensor whose storage it takes over, or kNone
  };
  std::vector<std::vector<Birth>> born(program.ops.size());
  std::vector<std::vector<TensorId>> dead(program.ops.size());
  for (const passes::Storage& storage : plan.storages) {
    TensorId predecessor = program::kNone;
    for (const TensorId id : storage.tensors) {
      const int first = plan.lifetimes[static_cast<std::size_t>(id)].first;
      born[static_cast<std::size_t>(first)].push_back({id, predecessor});
      predecessor = id;
    }
    dead[static_cast<std::size_t>(storage.lifetime.last)].push_back(predecessor);
  }
  std::vector<record::MemoryEvent> events;
  std::int64_t live_bytes = 0;
  append_persistent(events, live_bytes, program);
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].phase == program::Phase::setup) continue;
    for (const auto [id, predecessor] : born[op]) {
      const std::int64_t bytes = program.tensor(id).bytes();
      if (predecessor != program::kNone) {
        append(events, live_bytes, static_cast<std::int64_t>(op), predecessor, -bytes);
      }
      append(events, live_bytes, static_cast<std::int64_t>(op), id, bytes);
    }
    for (const TensorId id : dead[op]) {
      append(events, live_bytes, static_cast<std::int64_t>(op), id, -program.tensor(id).bytes());
    }
  }
  return events;
}

}  // namespace rooflm::trace
