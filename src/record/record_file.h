// The file of a new record, and how it replaces an old one. Private to the room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace rooflm::record {

/// A new, empty file for a record. If a record of that name exists, the new one is written as "NAME.new"
/// until `publish`.
class RecordFile {
 public:
  /// Creates the file; links are followed. Throws core::InputError if `path` exists and is not a run record
  /// or may not be overwritten, if another process is writing it, or if the file cannot be created. An empty
  /// file counts as a record: a run that was killed while creating its record leaves one. A "NAME.new" left
  /// by a killed run is removed.
  RecordFile(const std::filesystem::path& path, bool overwrite);
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  /// Removes the file unless it is to be kept.
  ~RecordFile();

  /// Path to write to.
  [[nodiscard]] const std::filesystem::path& written() const { return written_; }
  /// Whether it replaces an existing record.
  [[nodiscard]] bool replaces() const { return written_ != path_; }
  /// Sets whether the destructor keeps the file.
  void keep(bool keep) { keep_ = keep; }
  /// Gives the file its final name; it must have no -wal. Throws core::InputError.
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path written_;
  std::pair<std::uint64_t, std::uint64_t> identity_;  ///< of the file that was made
  bool keep_ = false;
};

}  // namespace rooflm::record
