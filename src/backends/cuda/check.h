// Error checks: every CUDA and cuBLASLt call goes through one of these functions.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace rooflm::backends::cuda {

/// Throws core::Unavailable "CUDA: WHAT: the driver's message" unless `error` is cudaSuccess; `what` says
/// what was being done. Clears the error, so a later call does not report it again.
void check(cudaError_t error, std::string_view what);

/// The same for a cuBLASLt call.
void check(cublasStatus_t status, std::string_view what);

/// As check, but a failed allocation of `bytes` throws core::OutOfMemory.
void check_allocation(cudaError_t error, std::size_t bytes);

}  // namespace rooflm::backends::cuda
