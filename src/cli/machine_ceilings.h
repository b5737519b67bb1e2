// All that this machine can do at best: measured once, kept for the commands that follow.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "core/dtype.h"
#include "record/rows.h"

namespace rooflm::cli {

struct CeilingRequest {
  std::set<int> threads;
  std::vector<core::DType> dtypes;  ///< of the matrix products; those without a kernel here are left out
  bool remeasure = false;           ///< even what is kept
  /// For each row, at least; what was measured for another time than the usual one is neither taken from the
  /// file nor kept in it.
  std::optional<double> seconds;
};

/// Matrix products per dtype, and read, write, update, copy and triad of fp64 for each cache level and DRAM,
/// for each number of threads: from the file of measure::ceiling_file as far as it has them, measured
/// otherwise (in less than ten seconds for fp32 and bf16 with two numbers of threads) and then kept there.
/// Says on standard error what it measures and why; a file that cannot be read or written stops nothing.
std::vector<record::Ceiling> machine_ceilings(const CeilingRequest& request);

/// With one thread and with `threads` (0: one per core).
std::vector<record::Ceiling> machine_ceilings(int threads, const std::vector<core::DType>& dtypes,
                                              bool remeasure);

}  // namespace rooflm::cli
