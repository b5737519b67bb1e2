// The text of data/devices.json, embedded in the binary.
#pragma once

#include <string_view>

namespace rooflm::devices {

std::string_view devices_text();

}  // namespace rooflm::devices
