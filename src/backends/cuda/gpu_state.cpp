// Driver version, free memory, clocks and power limit of a GPU, from NVML.
#include "backends/cuda/gpu_state.h"

#include <array>

#include "backends/cuda/nvml.h"

namespace rooflm::backends::cuda {
namespace {

// Declared here so that nvml.h is not needed to build.
using NvmlDriver = int (*)(char*, unsigned);
using NvmlClock = int (*)(Nvml::Device, int, unsigned*);
struct NvmlMemory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): as NVML declares them
};
using NvmlMemoryInfo = int (*)(Nvml::Device, NvmlMemory*);
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

GpuState query_state(int index) {
  GpuState state;
  const Nvml nvml;
  if (!nvml.reason().empty()) return state;
  std::array<char, 128> text{};
  const auto driver = nvml.find<NvmlDriver>("nvmlSystemGetDriverVersion");
  if (driver != nullptr && driver(text.data(), text.size()) == 0) state.driver = text.data();
  const Nvml::Device device = nvml.device(index);
  if (device == nullptr) return state;
  NvmlMemory memory{};
  const auto memory_info = nvml.find<NvmlMemoryInfo>("nvmlDeviceGetMemoryInfo");
  if (memory_info != nullptr && memory_info(device, &memory) == 0)
    state.free_bytes = static_cast<double>(memory.free);
  const auto now = nvml.find<NvmlClock>("nvmlDeviceGetClockInfo");
  const auto most = nvml.find<NvmlClock>("nvmlDeviceGetMaxClockInfo");
  state.sm_mhz = clock_of(now, device, kSm);
  state.sm_max_mhz = clock_of(most, device, kSm);
  state.memory_mhz = clock_of(now, device, kMemory);
  state.memory_max_mhz = clock_of(most, device, kMemory);
  unsigned limit_mw = 0;
  const auto limit = nvml.find<NvmlPower>("nvmlDeviceGetEnforcedPowerLimit");
  if (limit != nullptr && limit(device, &limit_mw) == 0) state.power_limit_w = kMilli * limit_mw;
  return state;
}

}  // namespace rooflm::backends::cuda
