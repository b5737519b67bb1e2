// The options that choose a part of what records hold.
#pragma once

#include <string>

#include "cli/command_line.h"
#include "report/filter.h"

namespace rooflm::cli {

/// As typed; each may be a list.
struct FilterOptions {
  std::string run, phase, scope, op;
  /// `with_op`: also --op, where ops are told apart.
  void add_to(CommandLine& line, bool with_op);
  /// Throws core::UsageError.
  [[nodiscard]] report::Filter filter() const;
};

}  // namespace rooflm::cli
