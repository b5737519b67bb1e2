// How the rows of a benchmark are shown: the columns of the source reports, speed-ups, formulas.
#pragma once

#include <vector>

#include "cli/table.h"
#include "lab/ceiling_book.h"

namespace rooflm::cli {

/// Sets `speedup_over_eager` of every fused row that has an eager row of the same configuration: the ratio of
/// the median step times. Of several eager rows, the one with the same attention counts, else batched.
void set_speedups(std::vector<Row>& rows);

/// The table that people see; its notes say what the times are, which peak was used and by which formulas.
Table bench_table(std::vector<Row> rows, const std::vector<record::Ceiling>& peaks);

}  // namespace rooflm::cli
