// The timed steps of a run as read from its record.
#pragma once

#include <cstdint>
#include <vector>

#include "record/database.h"
#include "record/rows.h"

namespace rooflm::record {

/// By step, then phase, outliers marked.
std::vector<Sample> read_samples(const Database& database, std::int64_t run);

}  // namespace rooflm::record
