// The records that the words of a command line name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/temporary_folder.h"

namespace rooflm::cli {

/// Files as they are; "-" is standard input, which is kept in a temporary file for as long as this lives.
class RecordArguments {
 public:
  /// Throws core::InputError as core::read_text, and core::UsageError where "-" stands twice.
  explicit RecordArguments(const std::vector<std::string>& words);
  [[nodiscard]] const std::vector<std::filesystem::path>& paths() const { return paths_; }

 private:
  std::optional<TemporaryFolder> folder_;
  std::vector<std::filesystem::path> paths_;
};

}  // namespace rooflm::cli
