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
  /// `output` is what -o says; "-" is standard output. The environment is in the record from the start,
  /// unless `has_machine` is false: of ranks whose record nobody reads. Throws core::InputError when it
  /// cannot be made, before anything is measured.
  CommandRecord(const std::string& output, bool overwrite, const std::string& command,
                bool has_machine = true);
  CommandRecord(const CommandRecord&) = delete;
  CommandRecord& operator=(const CommandRecord&) = delete;
  ~CommandRecord();

  [[nodiscard]] record::Writer& writer() { return *writer_; }
  /// Completes the record; with `-o -` prints it, otherwise says on standard error where it is when it is
  /// kept.
  void finish();
  /// Whether the record itself is what the command prints: `-o -`.
  [[nodiscard]] bool is_printed() const { return is_printed_; }
  /// Whether it stays where it is when the command ends.
  [[nodiscard]] bool is_kept() const { return folder_.empty(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path folder_;  ///< temporary; empty when the record is kept
  core::Descriptor lock_;         ///< of the temporary folder
  std::filesystem::path path_;
  std::unique_ptr<record::Writer> writer_;
  bool is_printed_ = false;
};

}  // namespace rooflm::cli
