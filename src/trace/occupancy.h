// Occupancy: how many blocks of a kernel a multiprocessor holds at once, and how many waves a grid takes.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/device_activity.h"

namespace rooflm::trace {

struct Occupancy {
  std::int64_t blocks = 0;      ///< resident blocks per multiprocessor; 0: unknown
  double occupancy = 0;         ///< resident warps / most warps of a multiprocessor
  std::string_view limit = {};  ///< the limiting resource: "registers", "shared", "threads", "blocks"
  double waves = 0;             ///< blocks of the grid / resident blocks of the device
};

/// By the rules of NVIDIA's occupancy calculator. Registers are allocated to warps in units of 256,
/// separately for each of the four partitions of a multiprocessor. Shared memory is allocated to blocks in
/// units of 128 bytes (256 before compute capability 8.0), plus 1 KiB of system memory from 8.0 on. Clusters
/// and the driver's split between L1 and shared memory are ignored, so this is an upper bound. blocks = 0 if
/// the device's limits are unknown.
Occupancy occupancy_of(const KernelLaunch& launch, const DeviceLimits& device);

}  // namespace rooflm::trace
