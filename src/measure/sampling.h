// Repeating a short piece of work until its time is known well enough.
#pragma once

#include <functional>

#include "core/statistics.h"

namespace rooflm::measure {

/// When to stop: after `seconds`, but not before `min_samples`, and at `max_samples` at the latest.
struct SamplingOptions {
  double seconds = 1.0;
  int min_samples = 6;  ///< the fewest with a 95 % interval of the median
  int max_samples = 1000;
};

/// Seconds of a monotonic clock; only differences mean anything.
double now_s();

/// Seconds of processor time that all threads of this process took so far.
double cpu_time_s();

/// How much of the time that `threads` threads wanted to compute they did, from the construction on: below 1
/// other programs had the processors, or threads waited for each other.
class CpuShare {
 public:
  explicit CpuShare(int threads) : threads_(threads), begin_s_(now_s()), cpu_begin_s_(cpu_time_s()) {}
  [[nodiscard]] double value() const;

 private:
  int threads_;
  double begin_s_, cpu_begin_s_;
};

/// Runs `work` once, discarded, then again and again; the summary is of `amount` per second of each run
/// (flop/s when amount is in flop). Throws core::Stopped when a signal asked to stop.
core::Summary measure_rate(double amount, const std::function<void()>& work, const SamplingOptions& options);

}  // namespace rooflm::measure
