// The share of the processors that other programs used during a measurement.
#pragma once

#include <optional>
#include <string>

namespace rooflm::measure {

/// Counts from its construction on.
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

/// Above this share the machine counts as busy.
inline constexpr double kBusyShare = 0.05;

/// "other programs used 37.0 % of the processors".
std::string load_sentence(double others_share);

}  // namespace rooflm::measure
