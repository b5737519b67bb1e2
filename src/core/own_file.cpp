// Files that belong to the binary.
#include "core/own_file.h"

#include <fmt/format.h>

#include <system_error>

#include "core/error.h"

namespace rooflm::core {

namespace fs = std::filesystem;

std::vector<fs::path> places_of_own_file(const std::string& name) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (folder.filename() == "tests") folder = folder.parent_path();
  return {folder / name, folder.parent_path() / ROOFLM_LIBEXEC_FOLDER / "rooflm" / name};
}

fs::path find_own_file(const std::string& name) {
  const std::vector<fs::path> places = places_of_own_file(name);
  std::error_code error;
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return place;
  }
  throw Unavailable(fmt::format("{} is not here: it belongs beside the binary ({}) or in {}", name,
                                places.front().parent_path().string(), places.back().parent_path().string()));
}

}  // namespace rooflm::core
