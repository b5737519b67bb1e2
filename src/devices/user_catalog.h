// Devices described by the user, in the format of data/devices.json.
#pragma once

#include <filesystem>
#include <vector>

#include "devices/device.h"

namespace rooflm::devices {

/// The GPUs of a JSON file {"devices": [..]} with the keys key, name, peak_flop_per_s (by dtype, dense),
/// memory (name, bytes, byte_per_s; innermost first), links (name, byte_per_s), multiprocessors, source and
/// optionally power_w. Throws core::InputError, naming file, device and key, if a key is missing, unknown,
/// not a positive number, or already used.
std::vector<Device> read_catalog(const std::filesystem::path& path);

}  // namespace rooflm::devices
