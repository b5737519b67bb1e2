// How a GPU ran matmuls: which kernels, in what grids.
#include "lab/micro/gemm_launch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace rooflm::lab {
namespace {

/// Launches of one kernel in one grid.
struct SameLaunches {
  std::int64_t total_ns = 0;
  const trace::DeviceActivity* first = nullptr;
};

}  // namespace

std::optional<double> GemmLaunch::tail() const {
  if (occupancy.waves < 1) return std::nullopt;
  return 1 - occupancy.waves / std::ceil(occupancy.waves);
}

std::optional<GemmLaunch> gemm_launch_of(const trace::DeviceTrace& trace) {
  GemmLaunch found;
  std::map<std::pair<std::size_t, trace::Extent>, SameLaunches> all;
  for (const trace::DeviceActivity& activity : trace.activities) {
    if (activity.kind != trace::ActivityKind::kernel || !activity.launch) continue;
    ++found.kernels;
    SameLaunches& same = all[{activity.name, trace.launches.at(*activity.launch).grid}];
    same.total_ns += activity.end_ns - activity.start_ns;
    if (same.first == nullptr) same.first = &activity;
  }
  const auto most =
      std::ranges::max_element(all, {}, [](const auto& entry) { return entry.second.total_ns; });
  if (most == all.end()) return std::nullopt;
  const trace::DeviceActivity& kernel = *most->second.first;
  const trace::KernelLaunch& launch = trace.launches.at(*kernel.launch);
  found.kernel = trace.names.at(kernel.name);
  found.grid = launch.grid;
  found.block = launch.block;
  const auto device = std::ranges::find(trace.devices, kernel.device, &trace::DeviceLimits::device);
  if (device != trace.devices.end()) found.occupancy = trace::occupancy_of(launch, *device);
  return found;
}

std::optional<GemmLaunch> trace_gemm(trace::ActivityTracer& tracer, const std::function<void()>& run) {
  run();  // code is loaded
  tracer.start(false);
  try {
    run();
  } catch (...) {
    tracer.stop();
    throw;
  }
  tracer.stop();
  return gemm_launch_of(tracer.take());
}

}  // namespace rooflm::lab
