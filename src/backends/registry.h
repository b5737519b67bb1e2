// The backends of this build, and finding one by the name of a device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/provider.h"

namespace rooflm::backends {

/// In the order of src/backends/CMakeLists.txt.
std::span<const Provider* const> providers();

/// The full name of a device as typed: "cuda" is "cuda:0". Throws core::UsageError with a suggestion.
std::string parse_device(std::string_view name);
/// The device that commands use if none is named; of several GPUs, the first that works from number `first`
/// on.
struct DefaultDevice {
  std::string name;  ///< "cuda:0", a GPU of this machine; otherwise "cpu"
  std::string why;   ///< "the fastest here: NVIDIA H100", "no CUDA device: ..."
};
DefaultDevice default_device(int first = 0);
/// The dtypes, by option names, in which a device of this machine computes; with `anywhere`, of any machine.
std::vector<std::string> offered_dtypes(bool anywhere);

/// The provider of a device. `device` is a name that parse_device returned.
const Provider& provider_of(std::string_view device);

}  // namespace rooflm::backends
