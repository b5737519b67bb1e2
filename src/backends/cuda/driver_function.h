// Functions of the CUDA driver that the runtime has no counterpart for.
#pragma once

#include <cuda_runtime_api.h>

namespace rooflm::backends::cuda {

/// The driver's function `name` in the form that it has had since CUDA 12.0; nullptr where this driver has
/// none.
template <class Function>
Function driver_function(const char* name) {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
  static_cast<void>(cudaGetLastError());
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(function);
}

}  // namespace rooflm::backends::cuda
