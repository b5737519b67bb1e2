// Collectives of programs, bound to NCCL.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/nccl_groups.h"

namespace rooflm::backends::cuda {

/// Kernels of all_reduce, all_gather and reduce_scatter, in the stream of their lane. Those of send and
/// receive throw core::Unavailable when they are made.
std::vector<KernelRow> nccl_rows(const std::shared_ptr<NcclGroups>& groups);

}  // namespace rooflm::backends::cuda
