// NVML, the GPU monitoring library, opened at run time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "backends/gauges.h"
#include "core/system/shared_library.h"

// NOLINTNEXTLINE(readability-identifier-naming): NVML's
struct nvmlDevice_st;

namespace rooflm::backends::cuda {

/// libnvidia-ml.so.1, opened and initialised; shut down by the destructor. Without it nothing is known.
class Nvml {
 public:
  using Device = nvmlDevice_st*;
  Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();
  /// Why nothing is known; "" if it works.
  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// A function of the library; nullptr if it does not exist.
  template <class Function>
  [[nodiscard]] Function find(const char* name) const {
    return library_ ? library_->find<Function>(name) : nullptr;
  }
  /// NVML's handle of cuda:`index`; nullptr if it has none.
  [[nodiscard]] Device device(int index) const;

 private:
  std::optional<core::SharedLibrary> library_;
  std::string reason_;
};

/// NVML's values for cuda:`index`: "power_w" (instantaneous), "sm_clock_hz", "memory_clock_hz",
/// "temperature_c", "gpu_utilization" (0 to 1), "throttle" (a bit per reason), and the energy counter (Volta
/// and later). Or the reason why there are none.
FoundGauges find_gauges(int index);

}  // namespace rooflm::backends::cuda
