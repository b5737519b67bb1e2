// Files that belong to the binary: what it opens or hands on at run time, wherever both lie.
#pragma once

#include <filesystem>
#include <string>

namespace rooflm::core {

/// The file `name` of this program: beside the binary, as a build has it, or in `libexec/rooflm` beside the
/// binary's folder, as an installation has it. Tests of a build lie one folder below. Throws Unavailable
/// "NAME is not here: it belongs beside the binary (FOLDER) or in FOLDER".
[[nodiscard]] std::filesystem::path find_own_file(const std::string& name);

}  // namespace rooflm::core
