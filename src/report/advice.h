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
};

/// At most `most` subjects per run, the largest possible gain first: parts of the step (layers added up) by
/// (device time - roof), and the time between kernels by (wall - device). The gain is a bound and not a
/// promise, and the sentences say so. Subjects without a roof are left out.
std::vector<Advice> advise(const RecordSet& set, std::size_t most = 5);
/// Of one run; `run` of each is 0.
std::vector<Advice> advise(const RunData& run, std::size_t most = 5);

}  // namespace rooflm::report
