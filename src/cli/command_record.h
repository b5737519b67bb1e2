// The record that a command writes: at the path of -o, otherwise in a temporary folder that is removed with
// this object.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/temporary_folder.h"
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
  ~CommandRecord() = default;

  [[nodiscard]] record::Writer& writer() { return *writer_; }
  /// Completes the record. With `-o -` writes it to standard output; otherwise prints its path on standard
  /// error if it is kept.
  void finish();
  /// Whether the record itself is what the command prints: `-o -`.
  [[nodiscard]] bool is_printed() const { return is_printed_; }
  /// Whether it stays where it is when the command ends.
  [[nodiscard]] bool is_kept() const { return !folder_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<TemporaryFolder> folder_;  ///< of a record that is not kept
  std::filesystem::path path_;
  std::unique_ptr<record::Writer> writer_;
  bool is_printed_ = false;
};

}  // namespace rooflm::cli
