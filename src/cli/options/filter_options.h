// The options that select a part of records.
#pragma once

#include <string>

#include "cli/command_line.h"
#include "report/model/filter.h"

namespace rooflm::cli {

/// As typed; each may be a list.
struct FilterOptions {
  std::string run, phase, scope, op;
  void add_to(CommandLine& line);
  /// Throws core::UsageError.
  [[nodiscard]] report::Filter filter() const;
};

}  // namespace rooflm::cli
