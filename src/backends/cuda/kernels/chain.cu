// Whether launches of a thread may overlap.
#include "backends/cuda/kernels/chain.cuh"

namespace rooflm::backends::cuda {

thread_local bool is_chained = false;

void chain_launches(bool may_overlap) { is_chained = may_overlap; }

}  // namespace rooflm::backends::cuda
