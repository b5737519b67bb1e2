// Error checks: every CUDA and cuBLASLt call goes through one of these functions.
#include "backends/cuda/check.h"

#include <fmt/format.h>

#include "backends/cuda/faults.h"
#include "core/error.h"
#include "core/units.h"

namespace rooflm::backends::cuda {

void check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw core::Unavailable(fmt::format("CUDA: {}: {}", what, explain(error)));
}

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw core::Unavailable(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

void check_allocation(cudaError_t error, std::size_t bytes) {
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    const auto size = static_cast<double>(bytes);
    throw core::OutOfMemory(fmt::format("the GPU has no {} left", core::format_bytes(size)), size);
  }
  check(error, "allocating device memory");
}

}  // namespace rooflm::backends::cuda
