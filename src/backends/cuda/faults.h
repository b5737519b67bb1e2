// Explains CUDA errors to the user.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace rooflm::backends::cuda {

/// Whether a kernel fault ended this process's use of the GPU: every later call returns the same error.
[[nodiscard]] bool is_fault(cudaError_t error) noexcept;

/// The driver's message and, where something can be done about it, advice: one line.
[[nodiscard]] std::string explain(cudaError_t error);

}  // namespace rooflm::backends::cuda
