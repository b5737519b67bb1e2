// Ranges of a host's threads that could be steps. Private to the room.
#pragma once

#include <vector>

#include "foreign/step_candidates.h"

namespace rooflm::foreign {

inline constexpr const char* kStepsWithoutDuration = "steps without a duration were left out";

/// Each thread's ranges of one name, but for the numbers at its end, that run.steps_by allows: those named as
/// steps, calls of an optimizer's step, and outermost ones that repeat.
std::vector<Candidate> range_candidates(ForeignRun& run, const std::vector<Launched>& work);

}  // namespace rooflm::foreign
