// Times every op of a step, between two marks of the device's stopwatch.
#include "trace/op_recorder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/units.h"

namespace rooflm::trace {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

OpRecorder::OpRecorder(const program::Program& program, const backends::Backend& backend,
                       std::size_t expected_steps)
    : stopwatch_(backend.make_stopwatch(2 * program.ops.size())), origin_ns_(now_ns()) {
  events_.reserve(program.ops.size() * expected_steps);
}

void OpRecorder::on_step_begin(const program::Program& /*program*/) {
  first_event_ = events_.size();
  beside_event_ = std::numeric_limits<std::size_t>::max();
  last_end_ns_ = now_ns();
}

void OpRecorder::on_waited() { last_end_ns_ = now_ns(); }

void OpRecorder::on_op_begin(const program::Program& /*program*/, std::size_t index) {
  begin_ns_ = now_ns();
  stopwatch_->mark(2 * index);
}

void OpRecorder::on_op_end(const program::Program& /*program*/, std::size_t index) {
  stopwatch_->mark(2 * index + 1);
  const std::int64_t end = now_ns();
  events_.push_back({.step = step_,
                     .op = static_cast<std::int64_t>(index),
                     .start_ns = begin_ns_ - origin_ns_,
                     .wall_ns = end - last_end_ns_});
  last_end_ns_ = end;
}

void OpRecorder::on_beside(const program::Program& /*program*/, std::span<const engines::OpBeside> ops) {
  beside_event_ = events_.size();
  for (const engines::OpBeside& beside : ops) {
    events_.push_back({.step = step_,
                       .op = static_cast<std::int64_t>(beside.op),
                       .start_ns = beside.begin_ns - origin_ns_,
                       .device_ns = beside.end_ns - beside.begin_ns});
  }
}

void OpRecorder::on_replayed(const program::Program& /*program*/, std::span<const engines::ReplayedOp> ops,
                             std::int64_t begin_ns) {
  for (const engines::ReplayedOp& replayed : ops) {
    events_.push_back({.step = step_,
                       .op = static_cast<std::int64_t>(replayed.op),
                       .start_ns = begin_ns - origin_ns_ + std::llround(replayed.start_s * core::kGiga),
                       .device_ns = std::llround(replayed.elapsed_s * core::kGiga)});
  }
  first_event_ = events_.size();
}

void OpRecorder::on_step_end(const program::Program& /*program*/) {
  for (std::size_t i = first_event_; i < std::min(beside_event_, events_.size()); ++i) {
    const auto op = static_cast<std::size_t>(events_[i].op);
    events_[i].device_ns = std::llround(stopwatch_->elapsed_s(2 * op, 2 * op + 1) * core::kGiga);
  }
  ++step_;
}

}  // namespace rooflm::trace
