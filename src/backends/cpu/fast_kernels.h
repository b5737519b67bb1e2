// The fast kernels of the CPU: rows that bind the functions of fast/ to ops.
#pragma once

#include <vector>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu {

/// Rows for fp32 and bf16; each returns an empty Kernel for dtypes that it does not handle.
std::vector<MakerRow> fast_kernels();

}  // namespace rooflm::backends::cpu
