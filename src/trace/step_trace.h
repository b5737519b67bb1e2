// Activities of traced steps, joined to their steps and ops, as rows of a run record.
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

/// Which op each node of a replayed graph is of, by its id as activities tell it. Nodes of the backend's own
/// (marks of progress) have none.
class NodeOps {
 public:
  /// `part`: which of the graphs that a step submits, one after the other.
  void add(std::uint64_t node, std::optional<std::size_t> op, std::size_t part = 0);
  /// Whether the part has such a node. A graph that runs is a copy, whose nodes keep the lower 32 bits, which
  /// nodes of other graphs have, too.
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

/// One traced step, as the host saw it: from the first submission, or from when a device that was held was
/// let go, until the device was done.
struct TracedStep {
  std::int64_t step = 0;  ///< as record::Sample::step
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t asked_ns = begin_ns;  ///< when the host began to submit it
  const NodeOps* nodes = nullptr;    ///< of a step that was replayed; must outlive the call of `rows_of`
  std::vector<OpSpan> ops{};         ///< of one that was submitted op by op, in that order
};

struct TraceRows {
  std::vector<record::Lane> lanes{};
  std::vector<record::ActivityName> names{};
  std::vector<record::Activity> activities{};
  std::int64_t kernels = 0;     ///< within the steps
  std::int64_t without_op = 0;  ///< of those: kernels of which nobody knows the op
  std::int64_t of_backend = 0;  ///< of those: nodes that the backend says are its own
  std::int64_t outside = 0;     ///< activities that are in no step, of which there are no rows
};

/// The rows of a run. What a device did belongs to the step in which the host asked for it, or else in which
/// it began. Its op is the one that captured its node, or the one during which it was asked for. Streams
/// become lanes, as do threads; a step is a range on the lane of its thread. Times count from `epoch_ns`.
/// `device_name` is what records call devices: "cuda" for "cuda:0".
TraceRows rows_of(const DeviceTrace& trace, std::span<const TracedStep> steps, std::int64_t epoch_ns,
                  const std::string& device_name);

/// Ops that were one kernel in `step` and nothing else (no copy, no second kernel) but fills of memory for
/// it, and the activity that it was: what is counted of such an op is counted of that kernel.
std::map<std::int64_t, std::int64_t> kernels_alone(const TraceRows& rows, std::int64_t step);

}  // namespace rooflm::trace
