// What to change first, and what it could gain.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/run_data.h"

namespace rooflm::report {

struct Advice {
  std::size_t run = 0;                 ///< index into RecordSet::runs
  std::string subject;                 ///< "h.*/attention/qkv backward"
  std::string text;                    ///< one sentence
  double gain_s = 0;                   ///< per step, at most: what lies between the time and its roof
  std::optional<double> step_share{};  ///< gain_s / the median step
  std::string setting{}, value{};  ///< of the configuration, what to change: "engine", "fused"; "" for none
};

/// At most `most` sentences per run, the largest possible gain first: parts of the step (layers added up)
/// that one remedy may help are one sentence, by the sum of (device time - roof); matmuls in fp32 by the rate
/// of bf16 measured here; the time between kernels by (wall - device). The gain is a bound and not a promise,
/// and the sentences say so. Parts without a roof are left out, and what another run of the set does already.
std::vector<Advice> advise(const RecordSet& set, std::size_t most = 5);
/// Of one run; `run` of each is 0.
std::vector<Advice> advise(const RunData& run, std::size_t most = 5);

}  // namespace rooflm::report
