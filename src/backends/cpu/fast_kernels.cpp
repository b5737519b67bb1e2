// The table of the fast kernels of the CPU.
#include "backends/cpu/fast_kernels.h"

namespace rooflm::backends::cpu {

std::vector<MakerRow> fast_kernels() { return {}; }

}  // namespace rooflm::backends::cpu
