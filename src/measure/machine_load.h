// How much of the processors other programs had while something was measured.
#pragma once

#include <optional>
#include <string>

namespace rooflm::measure {

/// Watches from its construction on.
class MachineLoad {
 public:
  MachineLoad();
  /// Share of the processors that this process may use which went to others since then, 0 to 1: other
  /// programs and what the hypervisor took (/proc/stat). Absent where the system does not say, and for less
  /// than half a second: it counts in hundredths.
  [[nodiscard]] std::optional<double> others_share() const;

 private:
  std::optional<double> busy_s_;  ///< of all processors together, since the system started
  double own_s_, wall_s_;
};

/// With more than this share taken by others, times are those of a machine that does something else, too.
inline constexpr double kBusyShare = 0.05;

/// "other programs had 37.0 % of the processors meanwhile".
std::string load_sentence(double others_share);

}  // namespace rooflm::measure
