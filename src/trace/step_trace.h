// Activities of traced steps, assigned to steps and ops, as rows of a run record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "record/rows.h"
#include "trace/device_activity.h"

namespace rooflm::trace {

/// When the host submitted one op, in nanoseconds of std::chrono::steady_clock.
struct OpSpan {
  std::size_t op = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// The op of each node of a replayed graph, by the node id of activities. The backend's own nodes (progress
/// marks) have no op.
class NodeOps {
 public:
  /// `part`: index of the graph among those that a step launches in sequence.
  void add(std::uint64_t node, std::optional<std::size_t> op, std::size_t part = 0);
  /// Whether the part has such a node. An executable graph is a copy, whose nodes keep only the lower 32 bits
  /// of their ids; these are not unique across graphs.
  [[nodiscard]] bool contains(std::uint64_t node, std::size_t part) const {
    return ops_.contains(key_of(node, part));
  }
  [[nodiscard]] std::optional<std::size_t> op_of(std::uint64_t node, std::size_t part) const;
  [[nodiscard]] std::size_t parts() const { return parts_; }

 private:
  static std::uint64_t key_of(std::uint64_t node, std::size_t part) {
    constexpr unsigned int kLocalBits = 32;
    return (std::uint64_t{part} << kLocalBits) | static_cast<std::uint32_t>(node);
  }
  std::unordered_map<std::uint64_t, std::optional<std::size_t>> ops_;
  std::size_t parts_ = 0;
};

/// One traced step, as the host saw it: from the first submission, or the release of a held device, until the
/// device was done.
struct TracedStep {
  std::int64_t step = 0;  ///< as record::Sample::step
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t asked_ns = begin_ns;  ///< when the host began to submit it
  const NodeOps* nodes = nullptr;    ///< for a replayed step; must outlive the call of `rows_of`
  std::vector<OpSpan> ops{};         ///< for a step submitted op by op, in that order
};

struct TraceRows {
  std::vector<record::Lane> lanes{};
  std::vector<record::ActivityName> names{};
  std::vector<record::Activity> activities{};
  std::int64_t kernels = 0;     ///< within the steps
  std::int64_t without_op = 0;  ///< kernels that could not be assigned to an op
  std::int64_t of_backend = 0;  ///< of those: the backend's own nodes
  std::int64_t outside = 0;     ///< activities outside of any step; they have no rows
};

/// The rows of a run. Device work belongs to the step in which the host requested it, otherwise to the step
/// in which it began. Its op is the one that recorded its graph node, or the one that was being submitted
/// when it was requested. Streams and threads become lanes; a step is a range on its thread's lane. Times
/// count from `epoch_ns`. `device_name` is the record's name for devices: "cuda" for "cuda:0".
TraceRows rows_of(const DeviceTrace& trace, std::span<const TracedStep> steps, std::int64_t epoch_ns,
                  const std::string& device_name);

/// Ops that ran as a single kernel in `step`, without any copy or second kernel except memory fills for it;
/// and the activity of that kernel. Counters of that kernel are then counters of the op.
std::map<std::int64_t, std::int64_t> kernels_alone(const TraceRows& rows, std::int64_t step);

}  // namespace rooflm::trace
