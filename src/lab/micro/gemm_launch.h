// How a GPU ran matmuls: which kernels, in what grids.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trace/activity_tracer.h"
#include "trace/device_activity.h"
#include "trace/occupancy.h"

namespace rooflm::lab {

struct GemmLaunch {
  std::string kernel;                           ///< the one that took most of the time
  std::int64_t kernels = 0;                     ///< launched for all matmuls together
  trace::Extent grid{1, 1, 1}, block{1, 1, 1};  ///< of one launch of it
  trace::Occupancy occupancy{};                 ///< of it; blocks = 0 where the device's limits are not known
  [[nodiscard]] std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  /// Share of the time of the waves in which the last, not full one runs: 1 - waves / ceil(waves). Nothing
  /// below one wave.
  [[nodiscard]] std::optional<double> tail() const;
};

/// From what a profiler saw of one run; nothing where it saw no kernel.
std::optional<GemmLaunch> gemm_launch_of(const trace::DeviceTrace& trace);

/// The same of `run`, which submits all matmuls and waits for them, once. Throws core::Unavailable when the
/// profiler fails.
std::optional<GemmLaunch> trace_gemm(trace::ActivityTracer& tracer, const std::function<void()>& run);

}  // namespace rooflm::lab
