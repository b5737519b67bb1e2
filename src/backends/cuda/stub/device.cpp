// The answer of a build without a CUDA compiler.
#include "backends/cuda/device.h"

namespace rooflm::backends::cuda {

CudaStatus query_cuda() { return {{}, "rooflm was built without CUDA: " ROOFLM_CUDA_REASON}; }

}  // namespace rooflm::backends::cuda
