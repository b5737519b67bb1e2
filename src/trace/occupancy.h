// How many blocks of a kernel a multiprocessor holds at once, and how often the device fills up with them.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/device_activity.h"

namespace rooflm::trace {

struct Occupancy {
  std::int64_t blocks = 0;      ///< of one multiprocessor at once; 0: not known
  double occupancy = 0;         ///< warps at once / warps that a multiprocessor holds
  std::string_view limit = {};  ///< "registers", "shared", "threads", "blocks": what comes first
  double waves = 0;             ///< blocks of the grid / blocks that the device holds at once
};

/// By the rules of NVIDIA's occupancy calculator: registers are given to warps in units of 256, to each of
/// the four parts of a multiprocessor by itself; shared memory to blocks in units of 128 bytes (256 before
/// compute capability 8.0), with 1 KiB of the system's own from 8.0 on. What clusters and the driver's split
/// between L1 and shared memory take away is not counted, so that this is the most that can be resident.
/// Nothing (blocks = 0) where the device's limits are not known.
Occupancy occupancy_of(const KernelLaunch& launch, const DeviceLimits& device);

}  // namespace rooflm::trace
