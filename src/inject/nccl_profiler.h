// What NCCL tells a profiler plugin: each collective and message, as a row.
#pragma once

#include "inject/nccl_profiler_abi.h"

namespace rooflm::inject::nccl {

/// The functions of the plugin, by version of the interface.
PluginV1 plugin_v1();
PluginV2 plugin_v2();  ///< 3 has the same layout as far as it is read
PluginV4 plugin_v4();
PluginV5 plugin_v5();

}  // namespace rooflm::inject::nccl
