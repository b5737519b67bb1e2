// The verdicts of a comparison: times of both sides, tested together. Private to the room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/tables/compare.h"

namespace rooflm::report {

inline constexpr std::string_view kWholeStep = "step";

/// Seconds of each step, run by run.
using Runs = std::vector<std::vector<double>>;

/// A time that both sides have. All samples are positive, and each side has some.
struct TimePair {
  std::string run{}, subject{};
  Runs a{}, b{};
  double restart = 0;  ///< share by which runs may differ; infinite: runs say nothing about each other
};

/// Steps of all runs.
[[nodiscard]] std::vector<double> pooled(const Runs& runs);

/// Adds a row with its verdict for each pair, in their order, and notes on what the numbers of samples allow.
/// Whole steps are one family of tests, their parts another: many parts must not hide what the step says.
void judge(const std::vector<TimePair>& pairs, const CompareOptions& options, Comparison& comparison);

}  // namespace rooflm::report
