// One run as a part of the document. For .cpp files only.
#pragma once

#include <cstddef>

#include "report/json_parts.h"
#include "report/run_data.h"

namespace rooflm::report {

/// {"id", "label", "file", "status", "config", "facts", "step", "phases", "blocks", "samples", "ops",
/// "memory"}; `id` is the run's place in the document.
Json json_run(const RunData& run, std::size_t id);

}  // namespace rooflm::report
