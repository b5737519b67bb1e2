// What an engine that allocates as it goes allocates in a step.
#pragma once

#include <cstdint>

#include "backends/backend.h"
#include "engines/engine.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Runs one more step and adds to the run its memory events and facts: allocations, allocator_peak_bytes, and
/// at the step's peak allocator_reserved_bytes (what the allocator holds) and fragmentation (the share of it
/// that nothing uses).
void write_allocations(engines::Engine& engine, const backends::Backend& backend, std::int64_t run,
                       record::Writer& record);

}  // namespace rooflm::lab
