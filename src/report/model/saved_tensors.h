// What forward leaves in memory for backward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

struct SavedGroup {
  std::string part;  ///< "attention/qkv": where it was made, layers added up
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::int64_t layers = 0;  ///< how many layers it is spread over; 0 outside layers
};

struct SavedTensors {
  std::int64_t bytes = 0;          ///< the most that is alive at once
  std::int64_t op = -1;            ///< after this op
  std::vector<SavedGroup> groups;  ///< of that moment, largest first
};

/// Transient tensors written first by a forward op and read last by a backward op, at the moment when most of
/// their bytes are alive (with gradient accumulation that is one micro-batch's). A tensor that takes over the
/// storage of another (same arena offset) lives when the other no longer does, so nothing counts twice.
SavedTensors saved_tensors(const RunData& run);

}  // namespace rooflm::report
