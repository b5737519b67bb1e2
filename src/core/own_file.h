// Files that belong to the binary: what it opens or hands on at run time, wherever both lie.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rooflm::core {

/// Where the file `name` of this program may lie, the likeliest first: beside the binary, as a build has it,
/// or in `libexec/rooflm` beside the binary's folder, as an installation has it. Tests of a build lie one
/// folder below.
[[nodiscard]] std::vector<std::filesystem::path> places_of_own_file(const std::string& name);

/// The first of these that exists. Throws Unavailable "NAME is not here: it belongs beside the binary
/// (FOLDER) or in FOLDER".
[[nodiscard]] std::filesystem::path find_own_file(const std::string& name);

}  // namespace rooflm::core
