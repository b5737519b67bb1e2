// Runs that differ in a single size, for growth and for blocks over a size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// At least two sizes of one axis, everything else being the same.
struct SizeSweep {
  std::string axis;  ///< "seq", "batch", "heads"
  std::string of;    ///< what tells it from other sweeps of the axis: "B=4"; "" for the only one
  std::vector<const RunData*> runs{};  ///< smallest first; those without times (oom, failed) are left out
};

/// Of every axis, in the order above.
std::vector<SizeSweep> size_sweeps(const RecordSet& set);
/// The size of a run; 0 when its record does not say.
std::int64_t size_of(const RunData& run, std::string_view axis);

}  // namespace rooflm::report
