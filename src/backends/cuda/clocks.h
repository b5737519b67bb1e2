// The driver's version and the clocks of a GPU, as NVML tells them.
#pragma once

#include <optional>
#include <string>

namespace rooflm::backends::cuda {

struct GpuClocks {
  std::string driver{};  ///< "580.65.06"; "" when not known
  std::optional<int> sm_mhz{}, sm_max_mhz{}, memory_mhz{}, memory_max_mhz{};
};

/// Of GPU `index` now. NVML (libnvidia-ml.so.1) is opened at run time; where it is not there, nothing is
/// known.
GpuClocks query_clocks(int index);

}  // namespace rooflm::backends::cuda
