// The file that a new record is written to, and how it takes the place of an old one. Private to the room.
#pragma once

#include <filesystem>

namespace rooflm::record {

/// A new, empty file for a record. Where a record of that name stands, the new one is written beside it, as
/// "NAME.new", until `publish`.
class RecordFile {
 public:
  /// Creates the file. Throws core::InputError when `path` exists and is no run record or not to be
  /// overwritten, when another process is writing it, and when the file cannot be created. An empty file is
  /// what a run leaves that is killed while it creates its record: it counts as one. What an earlier run that
  /// was killed left in "NAME.new" is removed.
  RecordFile(std::filesystem::path path, bool overwrite);
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  /// Removes the file unless it is to be kept.
  ~RecordFile();

  /// Where to write.
  [[nodiscard]] const std::filesystem::path& written() const { return written_; }
  /// Whether there is an old record whose place the new one takes.
  [[nodiscard]] bool replaces() const { return written_ != path_; }
  /// Whether the file holds something that is worth keeping when this goes.
  void keep(bool keep) { keep_ = keep; }
  /// Gives the file its final name; there must be no -wal beside it. Throws core::InputError.
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path written_;
  bool keep_ = false;
};

}  // namespace rooflm::record
