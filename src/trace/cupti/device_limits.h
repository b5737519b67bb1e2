// What occupancy depends on, from the driver. For files of this folder only.
#pragma once

#include <vector>

#include "trace/device_activity.h"

namespace rooflm::trace {

/// Of all devices, by the numbers that activities name them by. Empty where there is no driver: CUPTI tells
/// it only to whom attaches before the first context is made.
std::vector<DeviceLimits> query_limits();

}  // namespace rooflm::trace
