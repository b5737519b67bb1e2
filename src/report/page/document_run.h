// One run as a part of the document. For .cpp files only.
#pragma once

#include <cstddef>
#include <vector>

#include "report/findings/headline.h"
#include "report/model/run_data.h"
#include "report/page/json_parts.h"
#include "report/page/timeline.h"

namespace rooflm::report {

/// `id`: the run's place in the document. web/src/document.ts has what each member says.
Json json_run(const RunData& run, std::size_t id, const Timeline& timeline, const Findings& found);

// Its larger parts:

/// Columns with a row per op of the step, rates and shares included.
Json json_ops(const RunData& run);
/// Columns with a row per node of scope_tree.
Json json_scopes(const RunData& run, bool merge_layers);
/// Events, tensors, what is alive at the peak, what persists; null where memory was not followed.
Json json_memory(const RunData& run);
/// Events on lanes, steps and series; null where nothing was timed. Columns of events and
/// series are texts of pack(): places in the lists beside them, -1 for none, durations beside starts. A value
/// of a series is a whole number of `step`s.
Json json_timeline(const Timeline& timeline);

/// The longest gaps (gaps_of); times as in the timeline, null where no step that it shows has them.
Json json_gaps(const RunData& run, const Timeline& timeline);

/// Columns with a row per op that hardware counted, with its intensity at DRAM, L2 and L1; null where nothing
/// was.
Json json_counted(const RunData& run);
Json json_why(const std::vector<Why>& parts);
Json json_glance(const Glance& glance);

}  // namespace rooflm::report
