// Whether a machine got slower or faster while it was measured.
#pragma once

#include <optional>
#include <string>

#include "core/statistics.h"

namespace rooflm::measure {

/// Mean clock frequency of the processors in hertz, as the operating system says now: scaling_cur_freq, or
/// the "cpu MHz" of /proc/cpuinfo (a constant in most virtual machines). Absent where it says nothing.
std::optional<double> clock_hz();

/// The clock before and after a measurement, in hertz.
struct ClockChange {
  std::optional<double> before_hz;
  std::optional<double> after_hz;
};

/// One sentence about the drift of times: "no drift: second half +0.1 % against the first, p = 0.62;
/// clock 2.60 GHz before and 2.60 GHz after", "drift: ...", or that the samples are too few to tell.
std::string drift_sentence(const core::Summary& seconds, const ClockChange& clock);

}  // namespace rooflm::measure
