// The functions behind the views: each adds its tables and charts to a view that has its name and title.
#pragma once

#include "report/run_data.h"
#include "report/view.h"

namespace rooflm::report {

// Of one run.
void add_overview(const RunData& run, const ViewOptions& options, View& view);
void add_phases(const RunData& run, const ViewOptions& options, View& view);
void add_blocks(const RunData& run, const ViewOptions& options, View& view);
void add_ops(const RunData& run, const ViewOptions& options, View& view);
void add_classes(const RunData& run, const ViewOptions& options, View& view);
void add_roofline(const RunData& run, const ViewOptions& options, View& view);
void add_gap(const RunData& run, const ViewOptions& options, View& view);
void add_instances(const RunData& run, const ViewOptions& options, View& view);
void add_attention(const RunData& run, const ViewOptions& options, View& view);
void add_memory(const RunData& run, const ViewOptions& options, View& view);
void add_saved(const RunData& run, const ViewOptions& options, View& view);
void add_allocator(const RunData& run, const ViewOptions& options, View& view);
void add_samples(const RunData& run, const ViewOptions& options, View& view);
void add_overhead(const RunData& run, const ViewOptions& options, View& view);
void add_input(const RunData& run, const ViewOptions& options, View& view);

// Of all runs together, or of the files.
void add_machine(const RecordSet& set, const ViewOptions& options, View& view);
void add_ceilings(const RecordSet& set, const ViewOptions& options, View& view);
void add_sweep(const RecordSet& set, const ViewOptions& options, View& view);
void add_growth(const RecordSet& set, const ViewOptions& options, View& view);
void add_precision(const RecordSet& set, const ViewOptions& options, View& view);
void add_cells(const RecordSet& set, const ViewOptions& options, View& view);

}  // namespace rooflm::report
