// Opening a file as a run record, or saying why it is none.
#include "record/open_record.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "record/schema.h"

namespace rooflm::record {
namespace {

constexpr std::chrono::seconds kPatience{2};

/// The first 100 bytes of every SQLite file (https://www.sqlite.org/fileformat.html, section 1.3).
constexpr std::size_t kHeaderBytes = 100;
using Header = std::array<char, kHeaderBytes>;
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr std::size_t kApplicationIdOffset = 68;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw core::InputError(fmt::format("cannot read {}: {}", path.string(), reason));
}

/// Nothing when the file is shorter than a header.
std::optional<Header> read_header(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) fail(path, error.message());
  if (std::filesystem::is_directory(status)) fail(path, "it is a directory");
  if (!std::filesystem::is_regular_file(status)) fail(path, "it is no regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, std::generic_category().message(errno));
  Header header{};
  file.read(header.data(), header.size());
  if (static_cast<std::size_t>(file.gcount()) < header.size()) return std::nullopt;
  return header;
}

/// Big-endian, as SQLite writes it.
std::int32_t application_id(const Header& header) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < sizeof(value); ++i) {
    value = value << 8U | static_cast<unsigned char>(header[kApplicationIdOffset + i]);
  }
  return static_cast<std::int32_t>(value);
}

bool is_sqlite(const Header& header) { return std::string_view(header.data(), kMagic.size()) == kMagic; }

void require_record(const std::filesystem::path& path) {
  const std::optional<Header> header = read_header(path);
  if (!header) {
    fail(path, fmt::format("it has {} bytes and is no run record", std::filesystem::file_size(path)));
  }
  if (!is_sqlite(*header)) fail(path, "it is no run record (no SQLite file)");
  if (application_id(*header) != kApplicationId)
    fail(path, "it is a SQLite file, but no run record of rooflm");
}

std::string writer_of(const Database& record) {
  Statement version = record.prepare("SELECT value FROM meta WHERE key = 'rooflm_version'");
  return version.step() ? "rooflm " + version.text(0) : "another rooflm";
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
  // The first read takes the lock, fixes what is seen, and notices a file that ends too early.
  record->execute("BEGIN; SELECT COUNT(*) FROM sqlite_schema");
  const auto found = static_cast<int>(record->query_integer("PRAGMA user_version"));
  if (found > version) {
    fail(path, fmt::format(
                   "it has schema {} and was written by {}; this is rooflm {}, which reads schemas up to {}",
                   found, writer_of(*record), ROOFLM_VERSION, version));
  }
  return found == version ? std::move(record) : migrated(*record, found, version, steps);
}

}  // namespace rooflm::record
