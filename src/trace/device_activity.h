// What a device did, as a profiler reports it: plain data, independent of the profiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rooflm::trace {

enum class ActivityKind : std::uint8_t { kernel, copy, memset, sync, api, overhead, memory };
/// The kinds of record::ActivityName: "kernel", "copy", "memset", "sync", "api", "overhead", "memory".
const char* name_of(ActivityKind kind);

using Extent = std::array<std::int64_t, 3>;

/// A kernel's launch configuration. Bytes are per block; local memory is per thread.
struct KernelLaunch {
  Extent grid{1, 1, 1}, block{1, 1, 1};
  Extent cluster{0, 0, 0};  ///< in blocks; zeros: no clusters
  std::int64_t registers = 0;
  std::int64_t shared_static = 0, shared_dynamic = 0, local = 0;
  [[nodiscard]] std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  [[nodiscard]] std::int64_t threads() const { return block[0] * block[1] * block[2]; }
};

/// One interval of a device or of a host thread that drives it, in nanoseconds of std::chrono::steady_clock.
struct DeviceActivity {
  ActivityKind kind = ActivityKind::kernel;
  std::size_t name = 0;  ///< index in DeviceTrace::names
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t device = 0, stream = 0;        ///< for kernels, copies and memsets
  std::optional<std::int64_t> thread{};       ///< for API calls: the operating system's thread id
  std::optional<std::int64_t> correlation{};  ///< equal for an API call and what it started
  std::optional<std::uint64_t> graph_node{};  ///< the node of the replayed graph
  std::optional<std::int64_t> bytes{};        ///< of copies and memsets; of memory allocated, < 0: freed
  std::optional<std::uint64_t> address{};     ///< address of memory that was allocated or freed at start_ns
  std::optional<std::size_t> launch{};        ///< for kernels: index in DeviceTrace::launches
};

/// Device limits that determine occupancy.
struct DeviceLimits {
  std::int64_t device = 0;
  std::string name{};                                       ///< the driver's
  std::int64_t multiprocessors = 0, warps = 0, blocks = 0;  ///< warps and blocks per multiprocessor
  std::int64_t registers = 0, shared_bytes = 0;             ///< per multiprocessor
  int major = 0, minor = 0;                                 ///< compute capability
};

struct DeviceTrace {
  std::vector<std::string> names{};  ///< each once
  std::vector<KernelLaunch> launches{};
  std::vector<DeviceActivity> activities{};
  std::vector<DeviceLimits> devices{};
  std::int64_t dropped = 0;  ///< records lost because no buffer was free
  std::int64_t ignored = 0;  ///< records of kinds that were not requested
};

}  // namespace rooflm::trace
