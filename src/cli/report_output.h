// Records shown: tables on standard output, the page in a file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/profile_options.h"

namespace rooflm::cli {

/// Checks formats, views and files before anything is measured. Throws core::UsageError, core::InputError when
/// the page could not be written, core::Unavailable when this binary has no page.
void check_output(const OutputOptions& output);

/// Prints the views of all runs of the records, and writes the page when it was asked for.
void show_records(const std::vector<std::filesystem::path>& records, const std::vector<std::string>& views,
                  const OutputOptions& output);

}  // namespace rooflm::cli
