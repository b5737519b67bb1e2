// Advertised rates of a device of the catalog, beside those that GEMMs sustain.
#pragma once

#include <string>
#include <vector>

#include "cli/table.h"
#include "devices/device.h"

namespace rooflm::cli {

/// By dtype: the datasheet's dense rate, that with 2:4 sparsity, and the highest rate of GEMMs: measured on
/// such a device, or for 16 bits by the share of the dense rate that devices of its family reach. And the
/// rows of a GEMM that computes as long as it reads its weights. `dtypes`: those that are shown; empty: all.
Table datasheet_table(const std::vector<devices::Device>& devices, const std::vector<std::string>& dtypes);

}  // namespace rooflm::cli
