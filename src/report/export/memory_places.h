// Where allocations of a run lie. Records of other programs have addresses; for our own steps, which have
// tensors, and for plans, which have only sums, they are made up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// A block that is allocated or freed.
struct MemoryChange {
  const record::MemoryEvent* event = nullptr;  ///< borrowed from the run
  std::string device{};
  std::int64_t address = 0;
  std::int64_t bytes = 0;       ///< freed: < 0, all that was allocated at `address`
  std::int64_t live_bytes = 0;  ///< on the device afterwards
};

struct PlacedMemory {
  std::vector<MemoryChange> changes;  ///< in the order of the record
  std::size_t left_out = 0;           ///< events that free what is not allocated, or have impossible sizes
};

/// The blocks of all memory events that change anything. Made-up addresses are those of the first gap that is
/// large enough. What has no tensor and no address is freed in the reverse order of its allocation, and a
/// block of which a part is freed first is two blocks from the start: so sums of live bytes are the record's.
PlacedMemory placed_memory(const RunData& run);

}  // namespace rooflm::report
