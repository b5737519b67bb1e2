// What a device did, as a profiler of it tells: plain data, whoever filled it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rooflm::trace {

enum class ActivityKind : std::uint8_t { kernel, copy, memset, sync, api, overhead, memory };
/// As record::ActivityName has it: "kernel", "copy", "memset", "sync", "api", "overhead", "memory".
const char* name_of(ActivityKind kind);

using Extent = std::array<std::int64_t, 3>;

/// How a kernel was launched. Bytes are per block, those of local memory per thread.
struct KernelLaunch {
  Extent grid{1, 1, 1}, block{1, 1, 1};
  Extent cluster{0, 0, 0};  ///< in blocks; zeros: launched without clusters
  std::int64_t registers = 0;
  std::int64_t shared_static = 0, shared_dynamic = 0, local = 0;
  [[nodiscard]] std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  [[nodiscard]] std::int64_t threads() const { return block[0] * block[1] * block[2]; }
};

/// One interval of a device or of a thread that drives it, in nanoseconds of std::chrono::steady_clock.
struct DeviceActivity {
  ActivityKind kind = ActivityKind::kernel;
  std::size_t name = 0;  ///< in DeviceTrace::names
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t device = 0, stream = 0;        ///< of kernels, copies and memsets
  std::optional<std::int64_t> thread{};       ///< of calls, as the operating system numbers it
  std::optional<std::int64_t> correlation{};  ///< the same for a call and for what it started
  std::optional<std::uint64_t> graph_node{};  ///< what a replayed graph ran it as
  std::optional<std::int64_t> bytes{};        ///< of copies and memsets; of memory taken, < 0 given back
  std::optional<std::uint64_t> address{};     ///< of memory that was taken or given back, at start_ns
  std::optional<std::size_t> launch{};        ///< in DeviceTrace::launches, of kernels
};

/// What occupancy depends on.
struct DeviceLimits {
  std::int64_t device = 0;
  std::int64_t multiprocessors = 0, warps = 0, blocks = 0;  ///< the last two of one multiprocessor
  std::int64_t registers = 0, shared_bytes = 0;             ///< of one multiprocessor
  int major = 0, minor = 0;                                 ///< compute capability
};

struct DeviceTrace {
  std::vector<std::string> names{};  ///< each once
  std::vector<KernelLaunch> launches{};
  std::vector<DeviceActivity> activities{};
  std::vector<DeviceLimits> devices{};
  std::int64_t dropped = 0;  ///< records that were lost because no buffer was free
  std::int64_t ignored = 0;  ///< records of kinds that nobody asked for
};

}  // namespace rooflm::trace
