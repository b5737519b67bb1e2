// The backends of this build, and finding one by the name of a device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/provider.h"

namespace rooflm::backends {

/// In the order of src/backends/CMakeLists.txt, where they are listed.
std::span<const Provider* const> providers();

/// The full name of a device as typed: "cuda" is "cuda:0". Throws core::UsageError with a suggestion.
std::string parse_device(std::string_view name);
/// The device that commands run on when none is named.
struct DefaultDevice {
  std::string name;  ///< "cuda:0", the first GPU that is here; "cpu"
  std::string why;   ///< "the fastest here: NVIDIA H100", "no CUDA device: ..."
};
DefaultDevice default_device();
/// By option names, those that a device of this machine computes in; with `anywhere`, of any machine.
std::vector<std::string> offered_dtypes(bool anywhere);

/// Whose device it is. `device` is a name that parse_device returned.
const Provider& provider_of(std::string_view device);

}  // namespace rooflm::backends
