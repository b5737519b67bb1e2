// Driver version, free memory, clocks and power limit of a GPU, from NVML.
#pragma once

#include <optional>
#include <string>

namespace rooflm::backends::cuda {

struct GpuState {
  std::string driver{};  ///< "580.65.06"; "" if unknown
  std::optional<double> free_bytes{};
  std::optional<int> sm_mhz{}, sm_max_mhz{}, memory_mhz{}, memory_max_mhz{};
  std::optional<double> power_limit_w{};  ///< clocks drop to stay below it
};

/// The current values of GPU `index`. NVML (libnvidia-ml.so.1) is opened at run time; without it nothing is
/// known.
GpuState query_state(int index);

}  // namespace rooflm::backends::cuda
