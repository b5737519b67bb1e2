// Where rooflm caches what it learned about this machine.
#pragma once

#include <filesystem>
#include <string>

namespace rooflm::core {

/// $XDG_CACHE_HOME/rooflm or ~/.cache/rooflm; empty if neither is known.
std::filesystem::path cache_folder();

/// Letters and digits of a name in lower case, other runs of characters as one "-"; "unknown" if empty.
std::string file_name_part(const std::string& name);

}  // namespace rooflm::core
