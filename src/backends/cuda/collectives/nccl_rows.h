// Collectives of programs, bound to NCCL.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/collectives/nccl_groups.h"

namespace rooflm::backends::cuda {

/// Kernels of all collectives and messages, in the stream of their lane; messages go on in streams of their
/// own (Context::message_stream).
std::vector<KernelRow> nccl_rows(const std::shared_ptr<NcclGroups>& groups);

}  // namespace rooflm::backends::cuda
