// Where rooflm caches what it learned about this machine.
#include "core/cache_file.h"

#include <cctype>
#include <cstdlib>

namespace rooflm::core {
namespace {

namespace fs = std::filesystem;

/// An absolute path from the environment, or nothing: relative ones must be ignored (XDG Base Directory
/// Specification).
fs::path folder_from(const char* variable) {
  const char* value = std::getenv(variable);
  const fs::path folder = value == nullptr ? "" : value;
  return folder.is_absolute() ? folder : fs::path();
}

}  // namespace

fs::path cache_folder() {
  if (const fs::path folder = folder_from("XDG_CACHE_HOME"); !folder.empty()) return folder / "rooflm";
  const fs::path home = folder_from("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "rooflm";
}

std::string file_name_part(const std::string& name) {
  std::string part;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      part += static_cast<char>(std::tolower(byte));
    } else if (!part.empty() && part.back() != '-') {
      part += '-';
    }
  }
  while (!part.empty() && part.back() == '-') part.pop_back();
  return part.empty() ? "unknown" : part;
}

}  // namespace rooflm::core
