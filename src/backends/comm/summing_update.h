// Updates that sum the gradients of data-parallel ranks, for backends that use host memory.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/comm/communicator.h"

namespace rooflm::backends::comm {

/// Rows for Backend::prefer_kernels of `backend`, which outlives them: updates with the attribute `sums`
/// (program/ops/optimizer.cpp). They sum by collectives on `rank`, into memory of their own, and run the
/// backend's update on the sums.
std::vector<KernelRow> summing_updates(const std::shared_ptr<Communicator>& rank, Backend& backend);

}  // namespace rooflm::backends::comm
