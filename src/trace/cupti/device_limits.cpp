// Device limits for occupancy, from the driver.
#include "trace/cupti/device_limits.h"

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>

namespace rooflm::trace {
namespace {

constexpr std::int64_t kWarp = 32;

}  // namespace

std::vector<DeviceLimits> query_limits() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return {};
  const auto count_devices =
      reinterpret_cast<decltype(&cuDeviceGetCount)>(dlsym(library, "cuDeviceGetCount"));
  const auto find_device = reinterpret_cast<decltype(&cuDeviceGet)>(dlsym(library, "cuDeviceGet"));
  const auto ask = reinterpret_cast<decltype(&cuDeviceGetAttribute)>(dlsym(library, "cuDeviceGetAttribute"));
  if (count_devices == nullptr || find_device == nullptr || ask == nullptr) return {};
  const auto name = reinterpret_cast<decltype(&cuDeviceGetName)>(dlsym(library, "cuDeviceGetName"));
  int count = 0;
  if (count_devices(&count) != CUDA_SUCCESS) return {};
  std::vector<DeviceLimits> all;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    if (find_device(&device, i) != CUDA_SUCCESS) continue;
    const auto of = [&](CUdevice_attribute attribute) {
      int value = 0;
      return ask(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
    };
    std::array<char, 256> text{};
    if (name == nullptr || name(text.data(), static_cast<int>(text.size()) - 1, device) != CUDA_SUCCESS)
      text = {};
    all.push_back({.device = i,
                   .name = text.data(),
                   .multiprocessors = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                   .warps = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / kWarp,
                   .blocks = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
                   .registers = of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
                   .shared_bytes = of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
                   .major = of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                   .minor = of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)});
  }
  return all;
}

}  // namespace rooflm::trace
