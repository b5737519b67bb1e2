// Kernels of the collectives, for backends that use host memory.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/comm/communicator.h"

namespace rooflm::backends::comm {

/// Rows for Backend::add_kernels: the kernels run collectives on `rank` and keep it alive.
std::vector<KernelRow> kernels_of(const std::shared_ptr<Communicator>& rank);

}  // namespace rooflm::backends::comm
