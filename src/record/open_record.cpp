// Opens a file as a run record, or says why it is not one.
#include "record/open_record.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "record/schema.h"

namespace rooflm::record {
namespace {

/// The first 100 bytes of every SQLite file (https://www.sqlite.org/fileformat.html, section 1.3).
constexpr std::size_t kHeaderBytes = 100;
using Header = std::array<char, kHeaderBytes>;
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr std::size_t kPageBytesOffset = 16;  // 2 bytes; 1 means kLargestPage
constexpr std::size_t kPageCountOffset = 28;
constexpr std::size_t kApplicationIdOffset = 68;
constexpr std::uint64_t kLargestPage = 65536;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw core::InputError(fmt::format("cannot read {}: {}", path.string(), reason));
}

constexpr const char* kBeingCreated =
    "it is still being created; try again in a moment (or its writer was killed before it had written "
    "anything)";

/// Whether a rollback journal exists: the schema is created in a transaction with one; later records have
/// none.
bool is_being_created(const std::filesystem::path& path) {
  std::filesystem::path journal = path;
  journal += "-journal";
  std::error_code error;
  return std::filesystem::exists(journal, error);
}

/// Nothing if the file is shorter than a header.
std::optional<Header> read_header(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) fail(path, error.message());
  if (std::filesystem::is_directory(status)) fail(path, "it is a directory");
  if (!std::filesystem::is_regular_file(status)) fail(path, "it is not a regular file");
  const core::RandomFile file(path);
  Header header{};
  if (file.size() < header.size()) return std::nullopt;
  file.read(0, std::as_writable_bytes(std::span(header)));
  return header;
}

/// The big-endian integer of `bytes` bytes at `offset`, as SQLite stores it.
std::uint32_t number_at(const Header& header, std::size_t offset, std::size_t bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value = value << 8U | static_cast<unsigned char>(header.at(offset + i));
  }
  return value;
}

std::int32_t application_id(const Header& header) {
  return static_cast<std::int32_t>(number_at(header, kApplicationIdOffset, 4));
}

/// The file size according to the header.
std::uint64_t bytes_of_pages(const Header& header) {
  const std::uint64_t page_bytes = number_at(header, kPageBytesOffset, 2);
  return (page_bytes == 1 ? kLargestPage : page_bytes) * number_at(header, kPageCountOffset, 4);
}

/// SQLite reads a file that was truncated within its last page as if zeros followed. If a -wal holds the
/// newest pages, the file may be shorter; SQLite handles that.
void require_whole(const std::filesystem::path& path, const Header& header) {
  std::filesystem::path log = path;
  log += "-wal";
  std::error_code error;
  if (const auto log_bytes = std::filesystem::file_size(log, error); !error && log_bytes > 0) return;
  const std::uint64_t bytes = std::filesystem::file_size(path);
  if (bytes < bytes_of_pages(header)) {
    if (is_being_created(path)) fail(path, kBeingCreated);
    fail(path,
         fmt::format("it is truncated: it has {} bytes and should have {}", bytes, bytes_of_pages(header)));
  }
}

bool is_sqlite(const Header& header) { return std::string_view(header.data(), kMagic.size()) == kMagic; }

void require_record(const std::filesystem::path& path) {
  const std::optional<Header> header = read_header(path);
  if (!header && std::filesystem::file_size(path) == 0) fail(path, kBeingCreated);
  if (!header) {
    fail(path, fmt::format("it has {} bytes and is not a run record", std::filesystem::file_size(path)));
  }
  if (!is_sqlite(*header)) fail(path, "it is not a run record (not a SQLite file)");
  if (application_id(*header) != kApplicationId && is_being_created(path)) fail(path, kBeingCreated);
  if (application_id(*header) != kApplicationId)
    fail(path, "it is a SQLite file, but not a run record of rooflm");
  require_whole(path, *header);
}

std::string writer_of(const Database& record) {
  Statement version = record.prepare("SELECT value FROM meta WHERE key = 'rooflm_version'");
  return version.step() ? "rooflm " + core::printable(version.text(0)) : "another rooflm";
}

/// Virtual tables run code of their own when they are read. SQLite itself writes the beginning of each
/// definition, so one that begins differently has been tampered with.
void require_plain_schema(const std::filesystem::path& path, const Database& record) {
  Statement foreign = record.prepare(
      "SELECT name FROM sqlite_schema WHERE sql IS NOT NULL AND sql NOT LIKE 'CREATE TABLE %' AND sql NOT "
      "LIKE "
      "'CREATE INDEX %' AND sql NOT LIKE 'CREATE UNIQUE INDEX %' AND sql NOT LIKE 'CREATE VIEW %' AND sql "
      "NOT "
      "LIKE 'CREATE TRIGGER %'");
  if (!foreign.step()) return;
  fail(path,
       fmt::format("its schema has '{}', which is not a plain table", core::printable(foreign.text(0))));
}

}  // namespace

bool looks_like_record(const std::filesystem::path& path) {
  const std::optional<Header> header = read_header(path);
  return header && is_sqlite(*header) && application_id(*header) == kApplicationId;
}

std::unique_ptr<Database> open_record(const std::filesystem::path& path, int version,
                                      std::span<const Migration> steps) {
  require_record(path);
  auto record = std::make_unique<Database>(path, Database::Mode::read, kPatience);
  record->distrust();
  try {
    // The first read takes the lock, fixes the snapshot, and detects a truncated file.
    record->execute("BEGIN; SELECT COUNT(*) FROM sqlite_schema");
    require_plain_schema(path, *record);
  } catch (const core::InputError&) {
    if (is_being_created(path)) fail(path, kBeingCreated);
    throw;
  }
  const auto found = static_cast<int>(record->query_integer("PRAGMA user_version"));
  // The first transaction creates the tables and sets the version.
  if (found == 0 && record->query_integer("SELECT COUNT(*) FROM sqlite_schema") == 0)
    fail(path, kBeingCreated);
  if (found > version) {
    fail(path, fmt::format(
                   "it has schema {} and was written by {}; this is rooflm {}, which reads schemas up to {}",
                   found, writer_of(*record), ROOFLM_VERSION, version));
  }
  return found == version ? std::move(record) : migrated(*record, found, version, steps);
}

}  // namespace rooflm::record
