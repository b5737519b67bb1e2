// Kernels of what ranks with a part of the vocabulary do: as their header defines it, element by element in
// double.
#pragma once

#include <vector>

#include "backends/backend.h"

namespace rooflm::tests {

/// Rows for Backend::add_kernels, of compile/passes/part_ops.h.
std::vector<backends::KernelRow> part_kernels();

}  // namespace rooflm::tests
