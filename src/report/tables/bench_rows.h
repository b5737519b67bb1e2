// The table of `rooflm bench`: a row for each run of a record.
#pragma once

#include <vector>

#include "report/model/run_data.h"
#include "report/tables/table.h"

namespace rooflm::report {

/// The table of `rooflm bench`, its notes included: milliseconds of the plain steps by phase, rates, shares
/// and memory; what was not measured is null. MFU and share_of_peak are those of figures_of.
Table bench_table(const RecordSet& set);
/// Every column that it may have.
std::vector<Column> columns_of_bench();

}  // namespace rooflm::report
