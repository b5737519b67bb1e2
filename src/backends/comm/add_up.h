// Sums over ranks in host memory.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "program/groups.h"

namespace rooflm::backends::comm {

/// to = (to +) sum over ranks r of elements [part.begin, part.end) of from[r]. Sums in rank order, in fp64
/// for fp64 and in fp32 for all other dtypes, rounded once. `to` holds only the part and may alias that part
/// of a from[r].
void add_up(const std::vector<const void*>& from, core::DType dtype, program::Part part, void* to,
            bool accumulate);

}  // namespace rooflm::backends::comm
