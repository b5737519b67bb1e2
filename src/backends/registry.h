// The backends of this build, and finding one by the name of a device.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "backends/provider.h"

namespace rooflm::backends {

/// In the order of src/backends/CMakeLists.txt, where they are listed.
std::span<const Provider* const> providers();

/// The full name of a device as typed: "cuda" is "cuda:0". Throws core::UsageError with a suggestion.
std::string parse_device(std::string_view name);
/// Whose device it is. `device` is a name that parse_device returned.
const Provider& provider_of(std::string_view device);

}  // namespace rooflm::backends
