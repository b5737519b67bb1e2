// Stub for builds without a CUDA compiler.
#include "backends/cuda/device.h"

#include "backends/cuda/kernels_file.h"

namespace rooflm::backends::cuda {

CudaStatus query_cuda(std::optional<int>) {
  return {{}, "rooflm was built without CUDA: " ROOFLM_CUDA_REASON};
}

CudaStatus list_cuda() { return query_cuda({}); }

bool is_compiled_in() { return false; }

bool may_be_here() { return false; }

std::string describe_kernels() { return {}; }

}  // namespace rooflm::backends::cuda
