// Where what this machine taught is kept between runs.
#pragma once

#include <filesystem>
#include <string>

namespace rooflm::core {

/// $XDG_CACHE_HOME/rooflm or ~/.cache/rooflm; empty where neither is known.
std::filesystem::path cache_folder();

/// Letters and digits of a name in lower case, other runs of characters as one "-"; "unknown" for none.
std::string file_name_part(const std::string& name);

}  // namespace rooflm::core
