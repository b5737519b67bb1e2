// A folder for the record of one command, removed with this object. That of a killed command is removed by
// the next one.
#pragma once

#include <filesystem>

#include "core/system/descriptor.h"

namespace rooflm::cli {

class TemporaryFolder {
 public:
  /// Throws core::InputError where it cannot be made.
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  /// Where its record lies, or will.
  [[nodiscard]] std::filesystem::path record() const;

 private:
  std::filesystem::path path_;
  core::Descriptor lock_;
};

}  // namespace rooflm::cli
