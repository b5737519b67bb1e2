// All that this machine can do at best: measured once, kept for the commands that follow.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "record/rows.h"

namespace rooflm::cli {

struct CeilingRequest {
  std::set<int> threads;
  std::vector<core::DType> dtypes;  ///< of the matrix products; those without a kernel here are left out
  bool remeasure = false;           ///< forget what is kept
  /// For each row, at least; what was measured for another time than the usual one is neither taken from the
  /// file nor kept in it.
  std::optional<double> seconds;
};

/// Matrix products per dtype with the instruction peak beside them, and the loops of
/// measure::measure_bandwidth for each cache level and DRAM, for each number of threads: from the file of
/// measure::ceiling_file as far as it has them, measured otherwise (in less than ten seconds for fp32 and
/// bf16 with two numbers of threads) and then kept there. Says on standard error what it measures and why; a
/// file that cannot be read or written stops nothing.
std::vector<record::Ceiling> machine_ceilings(const CeilingRequest& request);

/// With one thread and with `threads` (0: one per core).
std::vector<record::Ceiling> machine_ceilings(int threads, const std::vector<core::DType>& dtypes,
                                              bool remeasure);

/// The ceilings that a command goes by. A ceiling is the best that the machine was ever seen to do: one that
/// a step beats was measured in a worse moment (memory of a shared machine differs by a third between
/// minutes), and is measured again beside that step.
class CeilingBook {
 public:
  CeilingBook() = default;
  /// Holds machine_ceilings(threads, dtypes, remeasure); nothing without dtypes.
  CeilingBook(int threads, const std::vector<core::DType>& dtypes, bool remeasure);

  /// Those of another device.
  void add(const std::vector<record::Ceiling>& rows) { rows_.insert(rows_.end(), rows.begin(), rows.end()); }
  [[nodiscard]] const std::vector<record::Ceiling>& rows() const { return rows_; }
  /// Measures once more what `bounds` name, as perfmodel::Roof::bound does ("matmul fp32", "DRAM"), and
  /// returns the rows that are now higher than before. They are in rows() then, and in the file. Each bound
  /// is measured again three times at most: a machine that is that unsteady is not known better by more.
  std::vector<record::Ceiling> raise(const std::set<std::string>& bounds);

 private:
  int threads_ = 0;
  std::vector<record::Ceiling> rows_;
  std::map<std::string, int> attempts_;  ///< by bound
};

}  // namespace rooflm::cli
