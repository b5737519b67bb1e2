// One run as a part of the document. For .cpp files only.
#pragma once

#include <cstddef>

#include "report/json_parts.h"
#include "report/run_data.h"

namespace rooflm::report {

/// {"id", "label", "file", "status", "kind", "config", "settings", "facts", "figures", "kernels", "step",
/// "phases", "blocks", "samples", "roofs", "ops", "scopes", "memory"}; `id` is the run's place in the
/// document.
Json json_run(const RunData& run, std::size_t id);

// Its larger parts:

/// Columns with a row per op of the step, rates and shares included.
Json json_ops(const RunData& run);
/// Columns with a row per node of scope_tree.
Json json_scopes(const RunData& run, bool merge_layers);
/// Events, tensors, what is alive at the peak, what persists; null where memory was not followed.
Json json_memory(const RunData& run);

}  // namespace rooflm::report
