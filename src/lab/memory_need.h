// What a step needs before anything large is allocated, and whether there is room for it.
#pragma once

#include "backends/backend.h"
#include "backends/provider.h"
#include "lab/point.h"
#include "program/program.h"

namespace rooflm::lab {

struct MemoryNeed {
  double planned_bytes = 0;    ///< the step's tensors
  double workspace_bytes = 0;  ///< scratch of the kernel that takes most, on processors
  double besides_bytes = 0;    ///< of the process, where the device runs things
  /// Within the user's limit and what is free; both may be infinite.
  [[nodiscard]] bool fits(double limit_bytes, double free_bytes) const {
    const double needed = planned_bytes + workspace_bytes;
    return needed <= limit_bytes && needed + besides_bytes <= free_bytes;
  }
};

MemoryNeed memory_need(const program::Program& program, double planned_bytes,
                       const backends::Provider& provider, const backends::Backend& backend);

}  // namespace rooflm::lab
