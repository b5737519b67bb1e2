// A kernel so simple that it fails only if the device cannot run our code.
#pragma once

#include <string>

namespace rooflm::backends::cuda {

/// Computes y = a·x + y for a few thousand floats on device `index` and compares with the host. Waits for the
/// device and leaves `index` current. Returns "", or one line that says what went wrong.
[[nodiscard]] std::string probe_device(int index);

}  // namespace rooflm::backends::cuda
