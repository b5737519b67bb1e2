// Device limits for occupancy, from the driver. For files of this folder only.
#pragma once

#include <vector>

#include "trace/device_activity.h"

namespace rooflm::trace {

/// The limits of all devices, by the device numbers of activities. Empty without a driver. CUPTI reports them
/// only to tools attached before the first context is created.
std::vector<DeviceLimits> query_limits();

}  // namespace rooflm::trace
