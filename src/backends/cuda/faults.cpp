// Explains CUDA errors to the user.
#include "backends/cuda/faults.h"

#include <fmt/format.h>

#include <cstdlib>

namespace rooflm::backends::cuda {
namespace {

/// "13.0" for 13000.
std::string version_text(int version) {
  constexpr int kMajor = 1000;
  constexpr int kMinor = 10;
  return fmt::format("{}.{}", version / kMajor, version % kMajor / kMinor);
}

std::string driver_advice() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  return fmt::format("rooflm was built with CUDA {} and wants a driver for it, this one is for {}",
                     version_text(CUDART_VERSION), version_text(driver));
}

std::string visibility_advice() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? std::string() : fmt::format("CUDA_VISIBLE_DEVICES is '{}'", visible);
}

std::string advice_for(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorUnsupportedPtxVersion:
      return driver_advice();
    case cudaErrorNoDevice:
      return visibility_advice();
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
      return "this build was compiled for compute capabilities " ROOFLM_CUDA_ARCHITECTURES
             "; -DROOFLM_CUDA_ARCHITECTURES=AUTO compiles for the GPU at hand";
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      return "another process has it for itself, or it is being reset";
    case cudaErrorMemoryAllocation:
      return "other programs hold its memory; nvidia-smi lists them";
    default:
      return {};
  }
}

}  // namespace

bool is_fault(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

std::string explain(cudaError_t error) {
  const std::string advice = advice_for(error);
  return advice.empty() ? cudaGetErrorString(error)
                        : fmt::format("{} ({})", cudaGetErrorString(error), advice);
}

}  // namespace rooflm::backends::cuda
