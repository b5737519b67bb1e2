// Kinds and names of activities by number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Kernels and collectives: what runs on the multiprocessors of a device.
inline bool is_kernel_kind(std::string_view kind) { return kind == "kernel" || kind == "collective"; }
/// What moves or fills memory.
inline bool is_copy_kind(std::string_view kind) { return kind == "copy" || kind == "memset"; }
inline bool is_device_kind(std::string_view kind) { return is_kernel_kind(kind) || is_copy_kind(kind); }

/// Kinds and names of activities by number.
class ActivityNames {
 public:
  explicit ActivityNames(const RunData& run);
  /// "" for a name that the run does not have.
  [[nodiscard]] const std::string& kind(const record::Activity& activity) const;
  [[nodiscard]] const std::string& text(const record::Activity& activity) const;
  [[nodiscard]] bool is_kernel(const record::Activity& activity) const {
    return is_kernel_kind(kind(activity));
  }
  [[nodiscard]] bool is_copy(const record::Activity& activity) const { return is_copy_kind(kind(activity)); }

 private:
  std::unordered_map<std::int64_t, const record::ActivityName*> names_;
};

}  // namespace rooflm::report
