// The same kernel with and without another kernel running.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/model/traced_kernels.h"

namespace rooflm::report {

/// Executions of one kernel on one problem that had the device to themselves, against those that another
/// kernel ran beside for at least half of their time.
struct Contention {
  std::string kernel{}, kernel_class{}, part{}, phase{};
  std::string beside{};  ///< class of what ran beside for the longest, of most of them
  std::size_t alone = 0, together = 0;
  double alone_s = 0, together_s = 0;  ///< medians of durations
  double slowdown = 0;                 ///< together_s / alone_s
  double lost_s =
      0;  ///< in a step as the engine runs it: (duration - alone_s) of those with something beside
};

/// Kernels that were seen both ways, largest loss first. The same kernel: name, grid, block, shapes of its
/// op. Traced steps in order, in which nothing runs beside anything else, tell the time alone of kernels that
/// otherwise never are.
std::vector<Contention> contention_of(const TracedKernels& kernels);

/// The gain of overlap, from steps of both kinds; nothing without them.
struct OverlapGain {
  double in_order_s = 0, overlapped_s = 0;  ///< medians of the time from the first kernel to the last
  double shared_s = 0;                      ///< mean of the time in which several kernels ran
};
std::optional<OverlapGain> overlap_gain(const DeviceTimes& times);

}  // namespace rooflm::report
