// The driver's version and the clocks of a GPU, from NVML.
#include "backends/cuda/clocks.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <memory>

namespace rooflm::backends::cuda {
namespace {

// As in nvml.h, which is not needed to build.
using NvmlDevice = struct nvmlDevice_st*;
using NvmlInit = int (*)();
using NvmlDriver = int (*)(char*, unsigned);
using NvmlFind = int (*)(const char*, NvmlDevice*);
using NvmlClock = int (*)(NvmlDevice, int, unsigned*);
constexpr int kSm = 1;
constexpr int kMemory = 2;

/// The library, opened and initialised; it is closed with this.
class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = find<NvmlInit>("nvmlInit_v2");
    is_ready_ = init != nullptr && init() == 0;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (is_ready_) {
      if (const auto shutdown = find<NvmlInit>("nvmlShutdown")) shutdown();
    }
    if (library_ != nullptr) dlclose(library_);
  }
  [[nodiscard]] bool is_ready() const { return is_ready_; }
  template <class Function>
  [[nodiscard]] Function find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }

 private:
  void* library_;
  bool is_ready_ = false;
};

std::optional<int> clock_of(NvmlClock ask, NvmlDevice device, int which) {
  unsigned mhz = 0;
  if (ask == nullptr || ask(device, which, &mhz) != 0) return std::nullopt;
  return static_cast<int>(mhz);
}

}  // namespace

GpuClocks query_clocks(int index) {
  GpuClocks clocks;
  const Nvml nvml;
  if (!nvml.is_ready()) return clocks;
  std::array<char, 128> text{};
  const auto driver = nvml.find<NvmlDriver>("nvmlSystemGetDriverVersion");
  if (driver != nullptr && driver(text.data(), text.size()) == 0) clocks.driver = text.data();
  // NVML numbers GPUs as the bus does, CUDA as CUDA_VISIBLE_DEVICES says: the bus address is common to both.
  const auto find = nvml.find<NvmlFind>("nvmlDeviceGetHandleByPciBusId_v2");
  NvmlDevice device = nullptr;
  const bool has_address =
      cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index) == cudaSuccess;
  if (!has_address) static_cast<void>(cudaGetLastError());
  if (!has_address || find == nullptr || find(text.data(), &device) != 0) return clocks;
  const auto now = nvml.find<NvmlClock>("nvmlDeviceGetClockInfo");
  const auto most = nvml.find<NvmlClock>("nvmlDeviceGetMaxClockInfo");
  clocks.sm_mhz = clock_of(now, device, kSm);
  clocks.sm_max_mhz = clock_of(most, device, kSm);
  clocks.memory_mhz = clock_of(now, device, kMemory);
  clocks.memory_max_mhz = clock_of(most, device, kMemory);
  return clocks;
}

}  // namespace rooflm::backends::cuda
