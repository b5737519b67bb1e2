// Kernels of what ranks with a part of the vocabulary, or of each sequence, do: as their headers define it,
// element by element in double.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/comm/communicator.h"

namespace rooflm::tests {

/// Of compile/passes/ring_attention.h.
std::vector<backends::KernelRow> ring_kernels(const std::shared_ptr<backends::comm::Communicator>& rank);

/// Rows for Backend::add_kernels: of compile/passes/part_ops.h, and those above.
std::vector<backends::KernelRow> part_kernels(const std::shared_ptr<backends::comm::Communicator>& rank);

}  // namespace rooflm::tests
