// Driver version, clocks and power limit of a GPU, from NVML.
#include "backends/cuda/clocks.h"

#include <array>

#include "backends/cuda/nvml.h"

namespace rooflm::backends::cuda {
namespace {

// Declared here so that nvml.h is not needed to build.
using NvmlDriver = int (*)(char*, unsigned);
using NvmlClock = int (*)(Nvml::Device, int, unsigned*);
using NvmlPower = int (*)(Nvml::Device, unsigned*);
constexpr int kSm = 1;
constexpr int kMemory = 2;
constexpr double kMilli = 1e-3;

std::optional<int> clock_of(NvmlClock ask, Nvml::Device device, int which) {
  unsigned mhz = 0;
  if (ask == nullptr || ask(device, which, &mhz) != 0) return std::nullopt;
  return static_cast<int>(mhz);
}

}  // namespace

GpuClocks query_clocks(int index) {
  GpuClocks clocks;
  const Nvml nvml;
  if (!nvml.reason().empty()) return clocks;
  std::array<char, 128> text{};
  const auto driver = nvml.find<NvmlDriver>("nvmlSystemGetDriverVersion");
  if (driver != nullptr && driver(text.data(), text.size()) == 0) clocks.driver = text.data();
  const Nvml::Device device = nvml.device(index);
  if (device == nullptr) return clocks;
  const auto now = nvml.find<NvmlClock>("nvmlDeviceGetClockInfo");
  const auto most = nvml.find<NvmlClock>("nvmlDeviceGetMaxClockInfo");
  clocks.sm_mhz = clock_of(now, device, kSm);
  clocks.sm_max_mhz = clock_of(most, device, kSm);
  clocks.memory_mhz = clock_of(now, device, kMemory);
  clocks.memory_max_mhz = clock_of(most, device, kMemory);
  unsigned limit_mw = 0;
  const auto limit = nvml.find<NvmlPower>("nvmlDeviceGetEnforcedPowerLimit");
  if (limit != nullptr && limit(device, &limit_mw) == 0) clocks.power_limit_w = kMilli * limit_mw;
  return clocks;
}

}  // namespace rooflm::backends::cuda
