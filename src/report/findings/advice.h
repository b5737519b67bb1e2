// What to change first, and what it could gain.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Gains below this share of the step are not worth a sentence.
inline constexpr double kLeastGain = 0.005;

struct Advice {
  std::size_t run = 0;  ///< index into RecordSet::runs
  std::string subject;  ///< "h.*/attention/qkv backward"
  std::string text;     ///< one sentence
  double gain_s = 0;    ///< per step, at most: what lies between the time and its roof
  double time_s = 0;    ///< of the step, what it is about: the gain is no larger
  /// It is about time that others are about, too: another dtype makes matmuls faster that have a roof
  /// already.
  bool is_alternative = false;
  std::optional<double> step_share{};  ///< gain_s / the median step
  std::string setting{}, value{};  ///< of the configuration, what to change: "engine", "fused"; "" for none
};

/// At most `most` sentences per run, the largest possible gain first. Parts of the step (summed over layers)
/// with the same remedy share a sentence, with the sum of (device time - roof) as gain. The gain of fp32
/// matmuls follows from the bf16 rate measured here, that of time between kernels from (wall - device). Gains
/// are upper bounds, at most the step, and the sentences say so; no moment of a step is counted for two of
/// them (but is_alternative). Where the ops of the observed steps take
/// longer than a plain step, gains are scaled to it. Parts without a roof are left out, as are changes
/// that another run of the set already has.
std::vector<Advice> advise(const RecordSet& set, std::size_t most = 5);
/// The same of `run`, one of the set: what headline, page and views all show.
std::vector<Advice> advise(const RecordSet& set, const RunData& run, std::size_t most = 5);
/// Of one run as if it were alone; `run` of each is 0.
std::vector<Advice> advise(const RunData& run, std::size_t most = 5);
/// Whether the run has times that gains can be compared with: observed steps, or of a foreign program traced
/// ones.
bool is_advisable(const RunData& run);

}  // namespace rooflm::report
