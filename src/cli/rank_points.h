// Configurations that the ranks of a job run together.
#pragma once

#include <vector>

#include "lab/job.h"
#include "lab/point.h"
#include "lab/run.h"

namespace rooflm::cli {

/// Gives each point its rank, makes sure that its device is here, and that all ranks were told the same.
/// Throws core::UsageError, also for steps of which each rank could decide for itself how many there are, and
/// core::Unavailable. All ranks call it; of a command that is alone it checks the devices.
void take_places(std::vector<lab::Point>& points, const lab::RunSettings& settings, const lab::Ranks& ranks);

}  // namespace rooflm::cli
