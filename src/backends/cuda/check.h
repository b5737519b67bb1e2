// Every CUDA and cuBLASLt call goes through one of these functions.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace rooflm::backends::cuda {

/// Throws core::Unavailable "CUDA: WHAT: the driver's words" unless `error` is cudaSuccess; `what` says what
/// was being run. Clears the error, so that the next call is not blamed for it.
void check(cudaError_t error, std::string_view what);

/// The same for a product.
void check(cublasStatus_t status, std::string_view what);

/// As check, but a failed allocation is core::OutOfMemory that needs `bytes`.
void check_allocation(cudaError_t error, std::size_t bytes);

}  // namespace rooflm::backends::cuda
