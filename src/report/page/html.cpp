// The report page.
#include "report/page/html.h"

#include <fmt/format.h>

#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "report/page/page.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kElement = "<script id=\"rooflm-data\" type=\"application/json\">";
constexpr std::string_view kEnd = "</script>";

void require_page(std::string_view page) {
  if (!page.empty()) return;
  throw core::Unavailable(
      fmt::format("{}: this rooflm has no report page, so --html cannot be written; --format md, "
                  "csv or json hold the same numbers",
                  page_reason()));
}

/// JSON may write "<" as an escape inside strings, and "<" occurs nowhere else in it.
std::string escape_markup(std::string_view document) {
  std::string out;
  out.reserve(document.size());
  for (std::size_t i = 0; i < document.size(); ++i) {
    const char next = i + 1 < document.size() ? document[i + 1] : '\0';
    const bool is_markup = document[i] == '<' && (next == '/' || next == '!' || next == 's' || next == 'S');
    if (is_markup) {
      out += "\\u003c";
    } else {
      out += document[i];
    }
  }
  return out;
}

}  // namespace

std::string_view page_template() { return kPage; }

std::string_view page_reason() { return kPageReason; }

void require_page() { require_page(kPage); }

std::string fill_page(std::string_view page, std::string_view document) {
  require_page(page);
  const auto element = page.find(kElement);
  const auto start = element == std::string_view::npos ? element : element + kElement.size();
  const auto end = start == std::string_view::npos ? start : page.find(kEnd, start);
  if (end == std::string_view::npos) {
    throw core::InputError("the report page has no element for its data: expected " + std::string(kElement));
  }
  std::string out(page.substr(0, start));
  out += escape_markup(document);
  return out.append(page.substr(end));
}

void check_page_target(const std::filesystem::path& path, bool overwrite) {
  require_page(page_template());
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    if (std::filesystem::is_directory(folder, error)) return;
    throw core::InputError(
        fmt::format("cannot write {}: there is no folder {}", path.string(), folder.string()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw core::InputError(fmt::format("cannot write {}: it is not a regular file", path.string()));
  }
  if (!overwrite) {
    throw core::InputError(
        fmt::format("cannot write {}: it exists (--overwrite replaces it)", path.string()));
  }
}

void write_page(const std::filesystem::path& path, std::string_view document, bool overwrite) {
  check_page_target(path, overwrite);
  core::write_file_atomically(path, fill_page(page_template(), document));
}

}  // namespace rooflm::report
