// What a record stores about a kernel launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace/device_activity.h"

namespace rooflm::trace {

/// As JSON (record::Activity::extra). `node`: the graph node.
std::string describe_launch(const KernelLaunch& launch, const DeviceLimits* device,
                            std::optional<std::uint64_t> node);

}  // namespace rooflm::trace
