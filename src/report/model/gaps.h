// The longest stretches in which a device ran no kernel, and what the host did meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/device_times.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// From the end of one kernel to the start of the next, or to the end of the step.
struct Gap {
  std::int64_t step = 0;  ///< kWholeRecording: no step is known
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t step_start_ns = 0;
  std::string device{};
  std::optional<std::size_t> next{};  ///< the activity (index) that ended it
  std::array<double, kIdleCauses> cause_s{};
  /// The innermost call or range that took most of it, of the thread that launched what came next; "" where
  /// most of it passed outside of all that was recorded.
  std::string host{};
  std::string within{};  ///< the ranges around that, outermost first: "a > b"
  std::string line{};    ///< the line of the program that most stack samples were in; "" without samples
  [[nodiscard]] double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
  /// The one with most of it.
  [[nodiscard]] IdleCause cause() const;
};

/// Of the traced steps, or of a whole recording: the longest first. Devices have gaps of their own.
std::vector<Gap> gaps_of(const RunData& run, std::size_t most);

/// The innermost frame of a source file that scripts are written in; else the innermost of all. `frames`:
/// outermost first, not empty.
const std::string& line_of(const std::vector<std::string>& frames);

}  // namespace rooflm::report
