// Updates that sum the gradients of data-parallel ranks in the memory that these map.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/collectives/nccl_groups.h"

namespace rooflm::backends::cuda {

/// Rows for Backend::prefer_kernels: updates with the attribute `sums` (program/ops/optimizer.cpp), where the
/// ranks of the group `data` have mapped each other's memory.
std::vector<KernelRow> summing_updates(const std::shared_ptr<Context>& context,
                                       const std::shared_ptr<NcclGroups>& groups);

}  // namespace rooflm::backends::cuda
