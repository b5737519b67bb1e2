// The row of `rooflm bench` for a run of a record: the keys of JSON and CSV, and the table made of such rows.
#pragma once

#include <vector>

#include "report/model/run_data.h"
#include "report/tables/table.h"

namespace rooflm::report {

/// Milliseconds of the plain steps by phase, rates, shares and memory; what was not measured is null. MFU and
/// share_of_peak are those of figures_of.
Row bench_row(const RunData& run);

/// Rows with "speedup_over_eager": median step of the same configuration on the eager engine / that of the
/// row; null for eager rows and where there is no such row.
void set_speedups(std::vector<Row>& rows);

/// The table of `rooflm bench`, its notes included.
Table bench_table(const RecordSet& set);
/// Every column that it may have.
std::vector<Column> columns_of_bench();

}  // namespace rooflm::report
