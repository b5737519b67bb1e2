// Which calls of CUDA are recorded. For files of this folder and their tests only.
#pragma once

#include <string_view>

namespace rooflm::inject {

/// Whether a call (its name without version: "cudaLaunchKernel") starts work on a device.
bool starts_work(std::string_view call);
/// Whether it starts work, waits, takes or gives back memory, or loads code: all others, of which there are
/// ten times as many, take no time worth knowing.
bool matters(std::string_view call);
/// "cuLaunchKernel" of "cuLaunchKernel_ptsz" and "cuMemAlloc" of "cuMemAlloc_v2".
std::string_view plain_name(std::string_view call);

}  // namespace rooflm::inject
