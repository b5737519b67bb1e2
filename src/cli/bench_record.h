// A benchmark's measurements as runs of a record.
#pragma once

#include "cli/bench_row.h"
#include "record/writer.h"

namespace rooflm::cli {

/// Adds one configuration: its samples (none for status "oom" and "planned") and what the row says of it.
void add_bench_run(record::Writer& record, const Point& point, const BenchSettings& settings, const Row& row,
                   const std::vector<engines::StepTimes>& samples);

/// The rates that the rows were divided by.
void add_ceilings(record::Writer& record, const Ceilings& ceilings);

}  // namespace rooflm::cli
