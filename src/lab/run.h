// One run: built, checked against memory, measured, priced and recorded. bench, profile and studies differ
// only in settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lab/ceilings/ceiling_book.h"
#include "lab/job.h"
#include "lab/point.h"
#include "record/writer.h"

namespace rooflm::lab {

struct RunSettings {
  /// Break down the step: plain and observed steps in pairs, ops, tensors, memory, roofs and hardware
  /// counters. Otherwise only plain steps.
  bool observe = true;
  double precision = 0.01;  ///< stop when the interval of the median is within this share of it; 0: never
  int min_steps = 6;        ///< of each kind
  int max_steps = 200;      ///< of each kind
  double max_seconds = 30;  ///< after warm-up
  /// A step that takes longer is left in its middle, where one rank runs on a processor.
  double longest_step_s = std::numeric_limits<double>::infinity();
  bool measure_peak = true;  ///< that MFU divides by
  bool trace = false;        ///< with `observe`, of GPUs: a few steps kernel by kernel, at the end
  bool count = false;        ///< read the hardware counters of a GPU, op by op, in a few more steps
  std::optional<double> memory_limit_bytes;   ///< absent: what the device has free
  std::vector<std::filesystem::path> shards;  ///< text to compute on; none: random tokens
  Ranks ranks{};  ///< that run the points together, where they are split; of each the rank's own is given
};

/// How a run ended; the record has the same and more.
struct RunOutcome {
  std::int64_t run = 0;  ///< in the record
  std::string status;    ///< "success", "planned" (a device that runs nothing), "oom", "interrupted"
  int signal = 0;        ///< that interrupted it; 0: none, or a step that took too long
  double needed_bytes = 0;
  double free_bytes = 0;       ///< what the plan had to fit; infinite for a plan without a limit
  double workspace_bytes = 0;  ///< scratch of the kernel that takes most, on processors, besides
  double limit_bytes = 0;      ///< the user's; infinite without one
  double step_s = 0;           ///< median of the plain steps
  std::int64_t steps = 0;      ///< that the record has of the run: the number of the next
};

/// Of a run of status "oom": what it needs, and what there is.
std::string describe_shortage(const RunOutcome& outcome);

/// Runs the point and adds it to the record. The step is built, then held against the memory of the device
/// before anything large is allocated; weights come from the seed, tokens from the seed or the shards. What
/// does not fit becomes a run of status "oom", a device that runs nothing one of status "planned". A signal
/// (core::StopSignals) ends measuring, and so does a step longer than `longest_step_s`; what was measured
/// until then is kept, with status "interrupted".
/// Ceilings are measured when the first run needs them.
RunOutcome run_point(const Point& point, const RunSettings& settings, CeilingBook& ceilings,
                     record::Writer& record);

/// Builds the step of a run once more, for its kernels (settings.trace) and its hardware counters
/// (settings.count), and adds them to that run of the record. A profiler that was attached stays and slows
/// what runs after it, so of a sweep all points are timed before the first of them is traced. Does nothing
/// for devices that cannot be traced and for runs that did not succeed; what goes wrong is one line. Returns
/// the number of the next step.
std::int64_t look_inside(const Point& point, const RunSettings& settings, const RunOutcome& outcome,
                         record::Writer& record);

}  // namespace rooflm::lab
