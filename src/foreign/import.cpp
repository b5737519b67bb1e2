// Which reader takes a file.
#include "foreign/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/names.h"
#include "core/printable.h"
#include "foreign/gzip.h"
#include "foreign/recorded.h"

namespace rooflm::foreign {
namespace {

constexpr std::string_view kSqlite("SQLite format 3\0", 16);

/// "" for what is none.
std::string kind_of_bytes(std::string_view bytes) {
  if (bytes.starts_with(kSqlite)) return "nsys";
  if (is_gzip(bytes)) return "kineto";
  if (is_stream(bytes)) return "stream";
  if (bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) return "torch-memory";
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);  // a byte order mark
  const auto first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && (bytes[first] == '{' || bytes[first] == '[');
  return is_json ? "kineto" : "";
}

}  // namespace

const std::vector<std::string>& import_kinds() {
  static const std::vector<std::string> kKinds = {"nsys", "kineto", "torch-memory", "stream"};
  return kKinds;
}

namespace {

/// Of a file's bytes, with what the user said of them.
std::string checked_kind(const std::filesystem::path& path, std::string_view bytes, std::string kind) {
  if (!kind.empty() && std::ranges::find(import_kinds(), kind) == import_kinds().end()) {
    throw core::UsageError(core::unknown_name("kind of file", kind, import_kinds()));
  }
  if (kind.empty()) kind = kind_of_bytes(bytes);
  if (kind.empty() && path.string().ends_with(".xplane.pb")) {
    throw core::InputError(fmt::format(
        "{}: XLA's own format is not read; JAX writes the same as a Chrome trace, *.trace.json.gz, beside it",
        path.string()));
  }
  const auto refuse = [&](std::string_view what) {
    throw core::InputError(fmt::format("{}: {}", path.string(), what));
  };
  if (kind.empty() && bytes.empty()) refuse("the file is empty");
  if (kind.empty() && (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")))
    refuse("the file is UTF-16, and JSON is UTF-8: iconv -f UTF-16 -t UTF-8 converts it");
  if (kind.empty() && bytes.starts_with("Time (%),"))
    refuse(
        "a report of nsys stats has sums, not events: import the database that nsys export --type sqlite "
        "writes");
  if (kind.empty()) {
    throw core::InputError(fmt::format(
        "{}: not a file that import reads: an nsys database (SQLite), a Chrome trace (JSON, also .gz) or a "
        "PyTorch memory snapshot (pickle); nsys export --type sqlite converts .nsys-rep files",
        path.string()));
  }
  return kind;
}

}  // namespace

std::string kind_of_file(const std::filesystem::path& path, const std::string& kind) {
  return checked_kind(path, core::MappedFile(path).text(), kind);
}

ForeignRun import_file(const std::filesystem::path& path, std::string kind) {
  const core::MappedFile file(path);
  std::string_view bytes = file.text();
  const bool is_said = !kind.empty();
  kind = checked_kind(path, bytes, std::move(kind));
  if (kind == "stream") {
    RecordedProcess process = read_stream(path);
    process.run.label = core::printable(path.filename().string());
    if (!process.has_ended) process.run.status = "interrupted";
    if (!process.problem.empty()) process.run.say(process.problem);
    return std::move(process.run);
  }
  ForeignRun run;
  run.label = core::printable(path.filename().string());
  const std::string where = path.string();
  bool is_cut = false;
  std::string unpacked;
  if (kind == "nsys") {
    if (!bytes.starts_with(kSqlite))
      throw core::InputError(fmt::format("{}: it is no SQLite database", where));
    read_nsys(path, run);
    return run;
  }
  if (is_gzip(bytes)) {
    unpacked = gunzip(bytes, where, is_cut);
    bytes = unpacked;
    if (!is_said && kind_of_bytes(bytes) == "torch-memory") kind = "torch-memory";
  }
  if (kind == "kineto") {
    read_kineto(bytes, where, is_cut, run);
  } else {
    read_torch_memory(bytes, where, run);
  }
  return run;
}

}  // namespace rooflm::foreign
