// Files that belong to the binary.
#include "core/system/own_file.h"

#include <fmt/format.h>

#include <system_error>
#include <vector>

#include "core/error.h"

namespace rooflm::core {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> places_of(const std::string& name) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path above = folder.parent_path();
  std::vector<fs::path> places{folder / name, above / ROOFLM_LIBEXEC_FOLDER / "rooflm" / name};
  if (folder.filename() == "tests" || folder.filename() == "bench") places.push_back(above / name);
  return places;
}

}  // namespace

fs::path find_own_file(const std::string& name) {
  const std::vector<fs::path> places = places_of(name);
  std::error_code error;
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return place;
  }
  throw Unavailable(fmt::format("{} is not here: it belongs beside the binary ({}) or in {}", name,
                                places[0].parent_path().string(), places[1].parent_path().string()));
}

}  // namespace rooflm::core
