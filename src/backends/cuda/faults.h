// What CUDA's errors mean for whoever reads the message.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace rooflm::backends::cuda {

/// Whether a kernel did something that ended the process's use of the GPU: every later call returns this too.
[[nodiscard]] bool is_fault(cudaError_t error) noexcept;

/// The driver's words and, where something can be done about it, what: one line.
[[nodiscard]] std::string explain(cudaError_t error);

}  // namespace rooflm::backends::cuda
