// Kinds and names of activities by number.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Kinds and names of activities by number.
class ActivityNames {
 public:
  explicit ActivityNames(const RunData& run);
  /// "" for a name that the run does not have.
  [[nodiscard]] const std::string& kind(const record::Activity& activity) const;
  [[nodiscard]] const std::string& text(const record::Activity& activity) const;
  /// Runs on the multiprocessors of a device: a kernel or a collective.
  [[nodiscard]] bool is_kernel(const record::Activity& activity) const;
  /// Moves or fills memory.
  [[nodiscard]] bool is_copy(const record::Activity& activity) const;

 private:
  std::unordered_map<std::int64_t, const record::ActivityName*> names_;
};

}  // namespace rooflm::report
