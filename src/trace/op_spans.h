// Watching the host: when it submits each op.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "engines/observer.h"
#include "trace/step_trace.h"

namespace rooflm::trace {

/// Nanoseconds of std::chrono::steady_clock.
inline std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Wants to see each op submitted, so that nothing is replayed.
class OpSpans final : public engines::Observer {
 public:
  void on_op_begin(const program::Program& /*program*/, std::size_t index) override {
    spans_.push_back({.op = index, .begin_ns = steady_ns()});
  }
  void on_op_end(const program::Program& /*program*/, std::size_t /*index*/) override {
    spans_.back().end_ns = steady_ns();
  }
  /// Those since the last call.
  [[nodiscard]] std::vector<OpSpan> take() { return std::exchange(spans_, {}); }

 private:
  std::vector<OpSpan> spans_;
};

/// Is content with a replay in which the ops run one after the other.
class InOrder final : public engines::Observer {
 public:
  [[nodiscard]] bool wants_marks() const override { return true; }
  void on_op_begin(const program::Program& /*program*/, std::size_t /*index*/) override {}
  void on_op_end(const program::Program& /*program*/, std::size_t /*index*/) override {}
};

}  // namespace rooflm::trace
