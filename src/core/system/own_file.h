// Files that belong to the binary and are used at run time.
#pragma once

#include <filesystem>
#include <string>

namespace rooflm::core {

/// The path of rooflm's file `name`: beside the binary, as in a build, or in `libexec/rooflm` beside the
/// binary's folder, as in an installation. Test binaries are one folder below. Throws Unavailable "NAME is
/// not here: it belongs beside the binary (FOLDER) or in FOLDER".
[[nodiscard]] std::filesystem::path find_own_file(const std::string& name);

}  // namespace rooflm::core
