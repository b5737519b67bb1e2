// Traces a device itself: which kernel ran when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trace/device_activity.h"

namespace rooflm::trace {

/// A device profiler. Traces what runs between `start` and `stop`; call both while the device is idle. After
/// `stop` it costs nothing. Not thread-safe.
class ActivityTracer {
 public:
  ActivityTracer() = default;
  ActivityTracer(const ActivityTracer&) = delete;
  ActivityTracer& operator=(const ActivityTracer&) = delete;
  virtual ~ActivityTracer() = default;

  /// "CUPTI 13.0.1".
  [[nodiscard]] virtual std::string version() const = 0;
  /// `with_memory`: also traces allocations, which slows steps down that allocate op by op. Throws
  /// core::Unavailable with the reason.
  virtual void start(bool with_memory) = 0;
  virtual void stop() noexcept = 0;
  /// Everything traced since the last call, unordered.
  [[nodiscard]] virtual DeviceTrace take() = 0;
  /// The id that activities use for a graph node (backends::NodeOp::node); nothing if unknown. Copies of a
  /// graph keep the lower 32 bits, which number the nodes within a graph.
  [[nodiscard]] virtual std::optional<std::uint64_t> node_id(std::uint64_t node) const = 0;
};

/// Buffer memory of the profiler during steps. What does not fit is lost and counted.
struct TracerMemory {
  std::size_t buffers = 48;
  std::size_t bytes_of_each = std::size_t{1} << 20U;
};

/// CUPTI, opened at run time: the same binary works without it. Throws core::Unavailable with the reason in
/// one line: missing, another version, another profiler attached, not permitted. At most one at a time. From
/// then on until it ends the process runs slower, even while nothing is traced, so do plain timing first.
std::unique_ptr<ActivityTracer> open_cupti(const TracerMemory& memory = {});

/// How to get a tracer: open_cupti, or a test's own.
using OpenTracer = std::function<std::unique_ptr<ActivityTracer>()>;

}  // namespace rooflm::trace
