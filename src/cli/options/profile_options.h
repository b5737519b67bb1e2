// The options for breaking down a step, shared by profile and study.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/options/stopping_options.h"
#include "cli/table.h"
#include "lab/run.h"

namespace rooflm::cli {

/// As typed; an empty text stands for the default that `settings` names.
struct ProfileOptions {
  StoppingOptions stopping;
  std::string memory_limit;
  std::string trace = "on";
  std::vector<std::string> data;
  bool remeasure = false, counters = false;
  void add_to(CommandLine& line);
  /// Checked and with defaults filled in. Throws core::UsageError, and
  /// core::InputError for data that is not there.
  [[nodiscard]] lab::RunSettings settings() const;
};

/// Where results go: the record, the page, tables.
struct OutputOptions {
  std::string record;  ///< -o
  std::string html;
  std::string views;
  TableOptions table;
  bool overwrite = false, dry_run = false;
  void add_to(CommandLine& line);
};

}  // namespace rooflm::cli
