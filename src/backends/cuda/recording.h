// Times and whole steps on a stream: events, and CUDA graphs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/context.h"

namespace rooflm::backends::cuda {

/// Marks are events; inside a recording they become nodes of its graph, so that every replay takes them anew.
class EventStopwatch final : public Stopwatch {
 public:
  EventStopwatch(std::shared_ptr<Context> context, std::size_t marks);
  void mark(std::size_t index) override;
  void mark_aside(std::size_t index) override;
  [[nodiscard]] bool is_on_device() const override { return true; }
  [[nodiscard]] double elapsed_s(std::size_t from, std::size_t to) const override;

 private:
  std::shared_ptr<Context> context_;
  std::vector<EventHandle> events_;
};

/// CUDA graphs of what was submitted to the context's stream: one, or several of more and more ops where each
/// is timed, since the host submits the marks of a graph after all of its work, and a device that has begun
/// by then takes the first of them late. Keeps the context, not the memory that the work uses.
class GraphRecording final : public Recording {
 public:
  /// Captures what `submit` submits. Throws what `submit` throws, and core::Unavailable when the graph cannot
  /// be made.
  GraphRecording(std::shared_ptr<Context> context, const Backend::SubmitStep& submit, Overlap overlap);
  void replay(const std::function<void()>& may_begin) override;
  [[nodiscard]] std::span<const NodeOp> nodes() const override { return nodes_; }

 private:
  void add_part(GraphHandle graph, const std::vector<NodeOp>& nodes);
  std::vector<GraphHandle> graphs_;  ///< kept for the sake of their nodes' identity
  std::vector<GraphExecHandle> executables_;
  std::vector<NodeOp> nodes_;
  std::shared_ptr<Context> context_;
};

}  // namespace rooflm::backends::cuda
