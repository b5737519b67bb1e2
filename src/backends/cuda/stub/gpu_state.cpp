// Stub for builds without a CUDA compiler.
#include "backends/cuda/gpu_state.h"

namespace rooflm::backends::cuda {

GpuState query_state(int /*index*/) { return {}; }

}  // namespace rooflm::backends::cuda
