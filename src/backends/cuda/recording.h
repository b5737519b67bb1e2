// Times and whole steps on a stream: events, and CUDA graphs.
#pragma once

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

/// A CUDA graph of what was submitted to the context's stream. Keeps the context, not the memory that the
/// work uses.
class GraphRecording final : public Recording {
 public:
  /// Captures what `submit` submits. Throws what `submit` throws, and core::Unavailable when the graph cannot
  /// be made.
  GraphRecording(std::shared_ptr<Context> context, const Backend::SubmitStep& submit, bool in_order);
  void replay() override;
  [[nodiscard]] std::span<const NodeOp> nodes() const override { return nodes_; }

 private:
  std::shared_ptr<Context> context_;
  GraphHandle graph_;  ///< kept for the sake of its nodes' identity
  GraphExecHandle executable_;
  std::vector<NodeOp> nodes_;
};

}  // namespace rooflm::backends::cuda
