// Work by the bytes that hardware counted at each level of memory: rows and points of a roofline.
#pragma once

#include <vector>

#include "report/charts/chart.h"
#include "report/model/counted.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// Counted flop per byte at DRAM, L2 and L1 beside the one by shapes, and the rates.
const TypedColumns<CountedGroup>& level_columns();
/// A row per group. `title` says what the groups are.
Table level_table(const std::vector<CountedGroup>& groups, const char* title);
/// A point per group and level, and one by shapes, below the roofs of the run.
Chart level_chart(const RunData& run, const std::vector<CountedGroup>& groups);

}  // namespace rooflm::report
