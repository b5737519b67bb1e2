// Sentences of a comparison. Private to the room.
#pragma once

#include <string>

#include "report/tables/compare.h"

namespace rooflm::report {

/// Whether it is of a part of the step, and not of the step or a phase.
[[nodiscard]] bool is_part(const ComparedTime& row);

/// "backward/attention +12.1 ms, forward/loss -0.3 ms": the parts of that configuration that add most to the
/// difference, in the order of the rows; "" without parts.
[[nodiscard]] std::string largest_parts(const Comparison& comparison, const std::string& run);

}  // namespace rooflm::report
