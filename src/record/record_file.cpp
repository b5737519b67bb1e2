// The file of a new record, and how it replaces an old one.
#include "record/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/system/descriptor.h"
#include "record/database.h"
#include "record/open_record.h"

namespace rooflm::record {
namespace {

std::filesystem::path with_suffix(std::filesystem::path path, std::string_view suffix) {
  path += suffix;
  return path;
}

bool is_empty_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && std::filesystem::file_size(path, error) == 0 &&
         !error;
}

/// Device and inode; zeros of no file.
std::pair<std::uint64_t, std::uint64_t> identity_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

/// Throws core::InputError unless `path` is a run record or an empty file, and no process is writing it.
/// Merges the -wal of a killed writer into the file: a stale -wal must not remain beside the record that
/// replaces it.
void require_replaceable(const std::filesystem::path& path) {
  if (is_empty_file(path)) return;
  if (!looks_like_record(path)) {
    throw core::InputError(fmt::format(
        "cannot write {}: it exists and is not a run record; remove it or give another name", path.string()));
  }
  try {
    const Database old(path, Database::Mode::write, std::chrono::milliseconds(0));
    old.execute("BEGIN IMMEDIATE; ROLLBACK");
  } catch (const DamagedFile&) {  // NOLINT(bugprone-empty-catch): may be replaced like any other
  }
}

bool is_finished(const std::filesystem::path& path) {
  if (is_empty_file(path)) return false;
  try {
    const Database record(path, Database::Mode::read, std::chrono::milliseconds(0));
    return record.query_integer("SELECT COUNT(*) FROM meta WHERE key = 'finished_utc'") > 0;
  } catch (const DamagedFile&) {
    return false;
  }
}

void remove_with_logs(const std::filesystem::path& path) {
  for (const std::string_view suffix : {"", "-wal", "-shm", "-journal"}) {
    std::error_code ignored;
    std::filesystem::remove(with_suffix(path, suffix), ignored);
  }
}

/// Removes a "NAME.new" left by a killed run. A finished record of that name may belong to somebody: it stays
/// unless its name is needed.
void remove_unfinished(const std::filesystem::path& left, bool is_needed) {
  require_replaceable(left);
  if (is_needed || !is_finished(left)) remove_with_logs(left);
}

}  // namespace

RecordFile::RecordFile(const std::filesystem::path& path, bool overwrite)
    : path_(core::follow_links(path)), written_(path_) {
  const bool exists = std::filesystem::exists(std::filesystem::symlink_status(path_));
  const auto left = with_suffix(path_, ".new");
  if (exists) {
    if (!overwrite) {
      throw core::InputError(
          fmt::format("cannot write {}: it exists (--overwrite replaces a run record)", path_.string()));
    }
    require_replaceable(path_);
    written_ = left;
  }
  std::error_code ignored;
  if (exists ? std::filesystem::exists(std::filesystem::symlink_status(left))
             : std::filesystem::is_regular_file(left, ignored) && looks_like_record(left)) {
    remove_unfinished(left, exists);
  }
  constexpr mode_t kMode = 0644;
  const core::Descriptor file(::open(written_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (file.get() < 0) core::fail_on("write", written_, errno);
  if (replaces()) core::take_permissions(file.get(), path_);
  identity_ = identity_of(written_);
}

RecordFile::~RecordFile() {
  // Another process may have taken the empty file of this name for one that was left, and replaced it.
  if (!keep_ && identity_of(written_) == identity_) remove_with_logs(written_);
}

void RecordFile::publish() {
  if (!replaces()) return;
  for (const std::string_view suffix : {"-wal", "-shm", "-journal"}) {
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
