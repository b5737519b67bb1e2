// The driver's version, the clocks and the power limit of a GPU, as NVML tells them.
#pragma once

#include <optional>
#include <string>

namespace rooflm::backends::cuda {

struct GpuClocks {
  std::string driver{};  ///< "580.65.06"; "" when not known
  std::optional<int> sm_mhz{}, sm_max_mhz{}, memory_mhz{}, memory_max_mhz{};
  std::optional<double> power_limit_w{};  ///< what the clock is lowered for
};

/// Of GPU `index` now. NVML (libnvidia-ml.so.1) is opened at run time; where it is not there, nothing is
/// known.
GpuClocks query_clocks(int index);

}  // namespace rooflm::backends::cuda
