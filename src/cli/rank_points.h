// Configurations that the ranks of a job run together.
#pragma once

#include <vector>

#include "lab/job.h"
#include "lab/point.h"
#include "lab/run.h"

namespace rooflm::cli {

/// Gives each point its rank, checks that its device exists and that all ranks have the same options. Throws
/// core::Unavailable and core::UsageError, also if ranks could run different numbers of steps. All ranks call
/// it. For a command without ranks it only checks the devices.
void take_places(std::vector<lab::Point>& points, const lab::RunSettings& settings, const lab::Ranks& ranks);

}  // namespace rooflm::cli
