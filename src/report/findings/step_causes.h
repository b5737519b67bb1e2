// Where the time of a traced step goes, by causes that add up to it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"
#include "report/runs/collective_waits.h"

namespace rooflm::report {

/// What a moment of a step is given to.
struct StepCause {
  std::string group{};  ///< "compute", "collectives", "idle"
  std::string
      name{};  ///< the class of a kernel, "tail"; "waiting", "transfer", "exposed"; a cause of idle time
  double seconds = 0;  ///< of a step
  std::string mend{};  ///< the remedy
};

struct StepCauses {
  std::size_t steps = 0;
  bool is_whole = false;  ///< of a recording without steps
  double step_s = 0;      ///< mean time on the device
  std::string device{};   ///< of a program of several: the one that they are of, else ""
  std::size_t devices = 1;
  WaitSource waits = WaitSource::unknown;
  std::vector<StepCause> causes{};  ///< add up to step_s; group by group, largest first
  /// "traced step", "recording".
  [[nodiscard]] const char* what() const { return is_whole ? "recording" : "traced step"; }
  /// "" of a program on one device, else " of cuda:1, which of 2 devices is idle least".
  [[nodiscard]] std::string of_which() const;
  [[nodiscard]] double of(std::string_view group) const;
};

/// Means of the traced steps; empty without kernels. A moment in which anything computes is that of the
/// classes of what computes, less what last waves of blocks leave empty (tail). One in which only collectives
/// run is exposed: waiting for other ranks, or transfer. All others are idle, by cause. Of a program that
/// runs on several devices they are those of the device that is idle least: the step waits for it.
StepCauses step_causes(const RunData& run);

/// What would help against a cause of idle time.
std::string_view mend_of_idle(std::string_view cause);

}  // namespace rooflm::report
