// Taking the place of NVTX's functions.
#pragma once

#include "inject/nvtx_abi.h"

namespace rooflm::inject {

/// Puts this library's functions in the place of NVTX's. False where the tables are not as they should be.
bool take_nvtx(nvtx::ExportTable export_table);

}  // namespace rooflm::inject
