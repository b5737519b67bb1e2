// Stub for builds without a CUDA compiler.
#include "backends/cuda/clocks.h"

namespace rooflm::backends::cuda {

GpuClocks query_clocks(int /*index*/) { return {}; }

}  // namespace rooflm::backends::cuda
