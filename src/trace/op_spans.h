// Observes the host: when it submits each op.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "engines/observer.h"
#include "trace/step_trace.h"

namespace rooflm::trace {

/// Current time in nanoseconds of std::chrono::steady_clock.
inline std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Must see each op submitted, so nothing is replayed.
class OpSpans final : public engines::Observer {
 public:
  void on_op_begin(const program::Program& /*program*/, std::size_t index) override {
    spans_.push_back({.op = index, .begin_ns = steady_ns()});
  }
  void on_op_end(const program::Program& /*program*/, std::size_t /*index*/) override {
    spans_.back().end_ns = steady_ns();
  }
  /// The spans since the last call.
  [[nodiscard]] std::vector<OpSpan> take() { return std::exchange(spans_, {}); }

 private:
  std::vector<OpSpan> spans_;
};

/// Accepts replays, but only with all ops in program order.
class InOrder final : public engines::Observer {
 public:
  [[nodiscard]] bool wants_marks() const override { return true; }
  void on_op_begin(const program::Program& /*program*/, std::size_t /*index*/) override {}
  void on_op_end(const program::Program& /*program*/, std::size_t /*index*/) override {}
};

}  // namespace rooflm::trace
