// The file that a new record is written to, and how it takes the place of an old one.
#include "record/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "record/database.h"
#include "record/open_record.h"

namespace rooflm::record {
namespace {

std::filesystem::path with_suffix(std::filesystem::path path, std::string_view suffix) {
  path += suffix;
  return path;
}

/// Throws core::InputError unless `path` is a run record that nobody is writing. Folds what a killed writer
/// left in its -wal into the file: a -wal must not be found beside the record that takes its place.
void require_replaceable(const std::filesystem::path& path) {
  if (!looks_like_record(path)) {
    throw core::InputError(fmt::format(
        "cannot write {}: it exists and is no run record; remove it or give another name", path.string()));
  }
  try {
    const Database old(path, Database::Mode::write, std::chrono::milliseconds(0));
    old.execute("BEGIN IMMEDIATE; ROLLBACK");
  } catch (const DamagedFile&) {  // NOLINT(bugprone-empty-catch): may be replaced like any other
  }
}

void remove_with_logs(const std::filesystem::path& path) {
  for (const std::string_view suffix : {"", "-wal", "-shm", "-journal"}) {
    std::error_code ignored;
    std::filesystem::remove(with_suffix(path, suffix), ignored);
  }
}

}  // namespace

RecordFile::RecordFile(std::filesystem::path path, bool overwrite) : path_(std::move(path)), written_(path_) {
  if (std::filesystem::exists(std::filesystem::symlink_status(path_))) {
    if (!overwrite) {
      throw core::InputError(
          fmt::format("cannot write {}: it exists (--overwrite replaces a run record)", path_.string()));
    }
    require_replaceable(path_);
    written_ = with_suffix(path_, ".new");
    if (std::filesystem::exists(std::filesystem::symlink_status(written_))) {
      require_replaceable(written_);
      remove_with_logs(written_);
    }
  }
  constexpr mode_t kMode = 0644;
  const int descriptor = ::open(written_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (descriptor < 0) {
    throw core::InputError(
        fmt::format("cannot write {}: {}", written_.string(), std::generic_category().message(errno)));
  }
  ::close(descriptor);
}

RecordFile::~RecordFile() {
  if (!keep_) remove_with_logs(written_);
}

void RecordFile::publish() {
  if (!replaces()) return;
  for (const std::string_view suffix : {"-wal", "-shm"}) {
    std::error_code ignored;
    std::filesystem::remove(with_suffix(path_, suffix), ignored);
  }
  std::error_code error;
  std::filesystem::rename(written_, path_, error);
  if (error) {
    throw core::InputError(fmt::format("cannot write {}: {}", path_.string(), error.message()));
  }
  core::sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace rooflm::record
