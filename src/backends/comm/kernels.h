// Kernels of the collectives, for backends whose memory is the host's.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/comm/communicator.h"

namespace rooflm::backends::comm {

/// Rows for Backend::add_kernels: collectives of a program run on `rank`, which they keep.
std::vector<KernelRow> kernels_of(const std::shared_ptr<Communicator>& rank);

}  // namespace rooflm::backends::comm
