// Sums over ranks, on memory of the host.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "program/groups.h"

namespace rooflm::backends::comm {

/// to = (to +) sum over ranks of elements [part.begin, part.end) of `from`, which has a pointer for each
/// rank: in the order of ranks, in fp64 for fp64 and in fp32 for everything else, rounded once. `to` holds
/// the part alone and may be what a rank's pointer leads to.
void add_up(const std::vector<const void*>& from, core::DType dtype, program::Part part, void* to,
            bool accumulate);

}  // namespace rooflm::backends::comm
