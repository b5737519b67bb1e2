// Times every op of a step, between two marks of the device's stopwatch.
#include "trace/op_recorder.h"

#include <chrono>
#include <cmath>

namespace rooflm::trace {
namespace {

constexpr double kNs = 1e9;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

OpRecorder::OpRecorder(const program::Program& program, const backends::Backend& backend,
                       std::size_t expected_steps)
    : stopwatch_(backend.make_stopwatch(2 * program.ops.size())),
      ends_(backend.make_stopwatch(program.ops.size() + 1)),
      origin_ns_(now_ns()) {
  events_.reserve(program.ops.size() * expected_steps);
}

void OpRecorder::on_step_begin(const program::Program& /*program*/) {
  first_event_ = events_.size();
  last_end_ns_ = now_ns();
}

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

void OpRecorder::on_record_begin(const program::Program& /*program*/) { ends_->mark(0); }

void OpRecorder::on_op_recorded(const program::Program& /*program*/, std::size_t index) {
  ends_->mark_aside(index + 1);
}

void OpRecorder::on_replayed(const program::Program& program) {
  std::size_t before = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].phase == program::Phase::setup) continue;
    const std::int64_t elapsed_ns = std::llround(ends_->elapsed_s(before, i + 1) * kNs);
    const std::int64_t start_ns = before == 0 ? 0 : std::llround(ends_->elapsed_s(0, before) * kNs);
    events_.push_back({.step = step_,
                       .op = static_cast<std::int64_t>(i),
                       .start_ns = last_end_ns_ - origin_ns_ + start_ns,
                       .device_ns = elapsed_ns,
                       .wall_ns = elapsed_ns});
    before = i + 1;
  }
  first_event_ = events_.size();
}

void OpRecorder::on_step_end(const program::Program& /*program*/) {
  for (std::size_t i = first_event_; i < events_.size(); ++i) {
    const auto op = static_cast<std::size_t>(events_[i].op);
    events_[i].device_ns = std::llround(stopwatch_->elapsed_s(2 * op, 2 * op + 1) * kNs);
  }
  ++step_;
}

}  // namespace rooflm::trace
