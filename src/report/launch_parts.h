// Grids and blocks of the parts of a layer.
#pragma once

#include "report/run_data.h"
#include "report/table.h"
#include "report/traced_kernels.h"

namespace rooflm::report {

/// By phase and part ("attention/qk"): kernels per step, and grid, block and name of the kernel that takes
/// the most time.
Table launch_parts(const RunData& run, const TracedKernels& kernels);

}  // namespace rooflm::report
