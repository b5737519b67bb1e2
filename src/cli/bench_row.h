// One run of a benchmark as a row of measurements.
#pragma once

#include "cli/table.h"
#include "lab/run.h"

namespace rooflm::cli {

/// Every column for every status; what was not measured is null. Quantities as in docs/design.md.
Row bench_row(const lab::Point& point, const lab::RunSettings& settings, const lab::RunOutcome& run);

}  // namespace rooflm::cli
