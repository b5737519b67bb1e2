// Queries the CUDA driver for its GPUs.
#include "backends/cuda/device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "backends/cuda/faults.h"
#include "backends/cuda/kernels/device_probe.h"
#include "backends/cuda/kernels_file.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

std::string error_text(cudaError_t error) {
  cudaGetLastError();  // clears the error, so the next caller does not see it
  return explain(error);
}

// Returns "" if a driver answers and sets `version`; otherwise the reason.
std::string find_driver(int& version) {
  const cudaError_t error = cudaDriverGetVersion(&version);
  if (error != cudaSuccess) return "no NVIDIA driver: " + error_text(error);
  if (version == 0) return "no NVIDIA driver: libcuda.so.1 is not on this machine";
  return {};
}

// Returns "" if the kernels for the device exist and one of them runs; otherwise the reason.
std::string try_kernels(int index) {
  try {
    select_device(index);
  } catch (const core::Error& error) {
    return error.what();
  }
  return probe_device(index);
}

// Fills in what the driver says of the device without opening it. Returns "" or the reason.
std::string describe(int index, CudaDevice& device) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    return error_text(error);
  }
  device.index = index;
  device.name = properties.name;
  device.sm_count = properties.multiProcessorCount;
  device.compute_major = properties.major;
  device.compute_minor = properties.minor;
  device.total_bytes = static_cast<double>(properties.totalGlobalMem);
  return {};
}

// Opens the device and fills in its memory. Returns "" if it works; otherwise the reason.
std::string try_device(int index, CudaDevice& device) {
  if (std::string failure = try_kernels(index); !failure.empty()) {
    return fmt::format("{} (compute capability {}.{}): {}", device.name, device.compute_major,
                       device.compute_minor, failure);
  }
  std::size_t free = 0;
  std::size_t total = 0;
  if (const cudaError_t error = cudaMemGetInfo(&free, &total); error != cudaSuccess) return error_text(error);
  device.free_bytes = static_cast<double>(free);
  device.total_bytes = static_cast<double>(total);
  return {};
}

// The GPUs that the driver shows, or `only` one of them; those that work if each is to be tried.
CudaStatus ask(std::optional<int> only, bool tries) {
  CudaStatus status;
  int driver_version = 0;
  int runtime_version = 0;
  int count = 0;
  if (status.reason = find_driver(driver_version); !status.reason.empty()) return status;
  cudaRuntimeGetVersion(&runtime_version);
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    status.reason = (error == cudaErrorInsufficientDriver ? "NVIDIA driver too old: " : "no CUDA device: ") +
                    error_text(error);
    return status;
  }
  for (int index = 0; index < count; ++index) {
    if (only && index != *only) continue;
    CudaDevice device;
    device.driver_version = driver_version;
    device.runtime_version = runtime_version;
    std::string failure = describe(index, device);
    if (failure.empty() && tries) failure = try_device(index, device);
    if (failure.empty()) {
      status.devices.push_back(std::move(device));
    } else {
      status.reason += fmt::format("{}cuda:{}: {}", status.reason.empty() ? "" : "; ", index, failure);
    }
  }
  if (count == 0) status.reason = "no CUDA device: the driver lists none";
  return status;
}

}  // namespace

CudaStatus query_cuda(std::optional<int> only) { return ask(only, true); }

CudaStatus list_cuda() { return ask({}, false); }

bool is_compiled_in() { return true; }

bool may_be_here() {
  constexpr std::array kDriverFiles = {"/dev/nvidiactl", "/dev/dxg"};  // Linux; Windows Subsystem for Linux
  return std::ranges::any_of(kDriverFiles, [](const char* path) { return ::access(path, F_OK) == 0; });
}

}  // namespace rooflm::backends::cuda
