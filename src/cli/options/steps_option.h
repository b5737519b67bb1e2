// --steps-by of import, record and report.
#pragma once

#include <string>

#include "cli/command_line.h"

namespace rooflm::cli {

inline constexpr const char* kStepsBy = "auto|optimizer|range:REGEX|kernels|graph|none";

/// `value` is checked by foreign::StepsBy::parse.
inline void add_steps_by(CommandLine& line, std::string& value) {
  line.add_option(
          "--steps-by", value,
          "What a step is: calls of an optimizer's step, ranges whose name holds a regular expression, "
          "kernels that repeat, launches of graphs, or nothing; auto: what covers most of the device's "
          "time and is most regular")
      .type_name(kStepsBy)
      .show_default();
}

}  // namespace rooflm::cli
