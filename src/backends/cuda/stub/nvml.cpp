// Stub for builds without a CUDA compiler.
#include "backends/cuda/nvml.h"

namespace rooflm::backends::cuda {

FoundGauges find_gauges(int /*index*/) {
  return {.gauges = nullptr, .missing = "rooflm was built without CUDA: " ROOFLM_CUDA_REASON};
}

}  // namespace rooflm::backends::cuda
