// Times every op of a step, with two readings of the clock per op.
#include "trace/op_recorder.h"

#include <chrono>

namespace rooflm::trace {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

OpRecorder::OpRecorder(const program::Program& program, std::size_t expected_steps) : origin_ns_(now_ns()) {
  events_.reserve(program.ops.size() * expected_steps);
}

void OpRecorder::on_step_begin(const program::Program& /*program*/) { last_end_ns_ = now_ns(); }

void OpRecorder::on_step_end(const program::Program& /*program*/) { ++step_; }

void OpRecorder::on_op_begin(const program::Program& /*program*/, std::size_t /*index*/) {
  begin_ns_ = now_ns();
}

void OpRecorder::on_op_end(const program::Program& /*program*/, std::size_t index) {
  const std::int64_t end = now_ns();
  events_.push_back({.step = step_,
                     .op = static_cast<std::int64_t>(index),
                     .start_ns = begin_ns_ - origin_ns_,
                     .device_ns = end - begin_ns_,
                     .wall_ns = end - last_end_ns_});
  last_end_ns_ = end;
}

}  // namespace rooflm::trace
