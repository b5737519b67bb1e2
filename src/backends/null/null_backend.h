// The device that runs nothing: for planning and tests.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace rooflm::backends {

/// Kernels do nothing, memory is address space only (nothing is ever touched).
std::unique_ptr<Backend> make_null_backend();

}  // namespace rooflm::backends
