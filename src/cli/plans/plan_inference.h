// `rooflm plan --phase prefill|decode|serve`: what generating text would take.
#pragma once

#include <string>

#include "cli/plans/plan_options.h"
#include "cli/table.h"

namespace rooflm::cli {

/// A row per combination of the options; `price` of a GPU hour, 0: not asked for. Throws core::UsageError for
/// options of training.
Table plan_inferences(const PlanOptions& options, double price, const std::string& currency);

}  // namespace rooflm::cli
