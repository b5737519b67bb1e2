// The ceilings of this machine: measured once, cached for later commands.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "record/rows.h"

namespace rooflm::lab {

struct CeilingRequest {
  std::set<int> threads;
  std::vector<core::DType> dtypes;  ///< of the matmuls; those without a kernel here are left out
  bool remeasure = false;           ///< forget what is kept
  bool only_products = false;       ///< no instruction peaks, caches and DRAM
  /// For each row, at least; with another time than the default, the cache is neither read nor written.
  std::optional<double> seconds;
};

/// Matmuls per dtype with the instruction peak beside them, and the loops of measure::measure_bandwidth for
/// each cache level and DRAM, for each number of threads: from the file of measure::ceiling_file as far as it
/// has them, measured otherwise (in less than ten seconds for fp32 and bf16 with two numbers of threads) and
/// then kept there. Prints on standard error what it measures and why; a cache that cannot be read or written
/// is not an error.
std::vector<record::Ceiling> machine_ceilings(const CeilingRequest& request);

/// Measures once more what `bounds` name, as perfmodel::Roof::bound does ("matmul fp32", "DRAM"), and returns
/// the rows that changed: they are now higher, or are no limits any more, since a time beat them and they
/// could only be measured again under load. They are in `rows` then, and limits in the file. Each bound is
/// measured again at most three times (`attempts` counts), since more attempts do not help on such an
/// unsteady machine.
std::vector<record::Ceiling> raise_ceilings(std::vector<record::Ceiling>& rows,
                                            std::map<std::string, int>& attempts, int threads,
                                            const std::set<std::string>& bounds);

}  // namespace rooflm::lab
