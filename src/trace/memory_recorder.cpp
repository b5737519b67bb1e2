// The memory of one step: which tensor became alive or died at which op.
#include "trace/memory_recorder.h"

namespace rooflm::trace {
namespace {

using program::Program;
using program::TensorId;

/// Appends events and keeps the running sum.
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
  std::vector<std::vector<TensorId>> born(program.ops.size());
  std::vector<std::vector<TensorId>> dead(program.ops.size());
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const auto [first, last] = plan.lifetimes[id];
    if (first < 0 || program::is_persistent(program.tensors[id].role)) continue;
    born[static_cast<std::size_t>(first)].push_back(static_cast<TensorId>(id));
    dead[static_cast<std::size_t>(last)].push_back(static_cast<TensorId>(id));
  }
  std::vector<record::MemoryEvent> events;
  std::int64_t live_bytes = 0;
  append_persistent(events, live_bytes, program);
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].phase == program::Phase::setup) continue;
    for (const TensorId id : born[op]) {
      append(events, live_bytes, static_cast<std::int64_t>(op), id, program.tensor(id).bytes());
    }
    for (const TensorId id : dead[op]) {
      append(events, live_bytes, static_cast<std::int64_t>(op), id, -program.tensor(id).bytes());
    }
  }
  return events;
}

}  // namespace rooflm::trace
