// rooflm plan --strategies.
#pragma once

#include <vector>

#include "cli/plans/plan_options.h"
#include "cli/table.h"

namespace rooflm::cli {

/// What --columns may name.
std::vector<Column> columns_of_strategies();

/// Each way to split the step alone, on --gpus devices: work, bytes sent, and from how many devices on it is
/// bound by communication. Throws core::UsageError for splits, which are what is compared, and where --gpus
/// is not given.
Table plan_strategies(const PlanOptions& options);

}  // namespace rooflm::cli
