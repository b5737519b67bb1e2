// Repeating a short piece of work until its time is known well enough.
#pragma once

#include <functional>
#include <optional>

#include "core/statistics.h"
#include "engines/engine.h"

namespace rooflm::measure {

/// When to stop: after `seconds`, but not before `min_samples`, and at `max_samples` or `most_seconds` at the
/// latest.
struct SamplingOptions {
  double seconds = 1.0;
  int min_samples = 6;  ///< the fewest with a 95 % interval of the median
  int max_samples = 1000;
  double most_seconds = 4.0;  ///< with what ran first, however few samples there are: at least one
};

/// Seconds of a monotonic clock; only differences mean anything.
double now_s();

/// Seconds of processor time that all threads of this process took so far.
double cpu_time_s();

/// Seconds that all threads of this process, which must not end meanwhile, were ready to run and had no
/// processor (/proc/self/task/*/schedstat); 0 where the system does not say.
double queued_s();

/// How much of the time that its threads wanted to compute they did, from the construction on: below 1 other
/// programs had the processors. Threads that sleep until others are done want nothing.
class CpuShare {
 public:
  CpuShare() : cpu_begin_s_(cpu_time_s()), queued_begin_s_(queued_s()) {}
  [[nodiscard]] double value() const;

 private:
  double cpu_begin_s_, queued_begin_s_;
};

/// A step, or nothing where the engine's check left it (engines::StepLeft).
std::optional<engines::StepTimes> whole_step(engines::Engine& engine, engines::Observer* observer = nullptr);

/// Runs `work` once, discarded, then again and again; the summary is of `amount` per second of each run
/// (flop/s when amount is in flop). Throws core::Stopped when a signal asked to stop.
core::Summary measure_rate(double amount, const std::function<void()>& work, const SamplingOptions& options);

}  // namespace rooflm::measure
