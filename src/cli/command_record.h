// The record that a command writes: kept under -o, otherwise in a temporary folder that goes away with this.
// The folder of a command that was killed is removed by the next.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/descriptor.h"
#include "record/writer.h"

namespace rooflm::cli {

class CommandRecord {
 public:
  /// `output` is what -o says. The environment is in the record from the start. Throws core::InputError when
  /// it cannot be made, before anything is measured.
  CommandRecord(const std::string& output, bool overwrite, const std::string& command);
  CommandRecord(const CommandRecord&) = delete;
  CommandRecord& operator=(const CommandRecord&) = delete;
  ~CommandRecord();

  [[nodiscard]] record::Writer& writer() { return *writer_; }
  /// Completes the record, and says on standard error where it is when it is kept.
  void finish();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path folder_;  ///< temporary; empty when the record is kept
  core::Descriptor lock_;         ///< of the temporary folder
  std::filesystem::path path_;
  std::unique_ptr<record::Writer> writer_;
};

}  // namespace rooflm::cli
