// A device that runs nothing: for planning and tests.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "backends/backend.h"

namespace rooflm::backends {

/// Kernels do nothing; memory is address space only and never touched. `device` is its name, `free_bytes` the
/// free memory that it reports: that of the device that it stands for.
std::unique_ptr<Backend> make_null_backend(std::string device = "null",
                                           double free_bytes = std::numeric_limits<double>::infinity());

}  // namespace rooflm::backends
