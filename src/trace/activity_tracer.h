// Watching a device itself: what ran on it when, kernel by kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trace/device_activity.h"

namespace rooflm::trace {

/// A profiler of devices. Traces what runs between `start` and `stop`; both are called when the device has
/// nothing to do, and cost it nothing afterwards. Not for several threads.
class ActivityTracer {
 public:
  ActivityTracer() = default;
  ActivityTracer(const ActivityTracer&) = delete;
  ActivityTracer& operator=(const ActivityTracer&) = delete;
  virtual ~ActivityTracer() = default;

  /// "CUPTI 13.0.1".
  [[nodiscard]] virtual std::string version() const = 0;
  /// `with_memory`: also what is allocated and freed, which slows steps down that do so op by op. Throws
  /// core::Unavailable with the reason.
  virtual void start(bool with_memory) = 0;
  virtual void stop() noexcept = 0;
  /// Everything that was traced since the last call, in no order.
  [[nodiscard]] virtual DeviceTrace take() = 0;
  /// What activities call a node of a graph (backends::NodeOp::node); nothing where that is not known. Graphs
  /// that are made of another keep the lower 32 bits, which number the nodes of one graph.
  [[nodiscard]] virtual std::optional<std::uint64_t> node_id(std::uint64_t node) const = 0;
};

/// Memory for what a profiler writes while steps run: what finds no room is lost, and counted.
struct TracerMemory {
  std::size_t buffers = 48;
  std::size_t bytes_of_each = std::size_t{1} << 20U;
};

/// CUPTI, found when the program runs: the same binary works without it. Throws core::Unavailable with the
/// reason in one line: it is not here or of another version, another profiler is attached, it is not allowed.
/// At most one at a time. From then on the process pays for being watched, also while nothing is traced,
/// until it ends: what is to be timed plainly comes before.
std::unique_ptr<ActivityTracer> open_cupti(const TracerMemory& memory = {});

/// How a tracer is had: open_cupti, or a test's own.
using OpenTracer = std::function<std::unique_ptr<ActivityTracer>()>;

}  // namespace rooflm::trace
