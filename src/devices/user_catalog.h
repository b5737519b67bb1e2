// Devices that a user describes, in the form of data/devices.json.
#pragma once

#include <filesystem>
#include <vector>

#include "devices/device.h"

namespace rooflm::devices {

/// The GPUs of a JSON file {"devices": [..]} with the keys key, name, peak_flop_per_s (by dtype, dense),
/// memory (name, bytes, byte_per_s; from the innermost out), links (name, byte_per_s), multiprocessors,
/// source and, if known, power_w. Throws core::InputError that names file, device and key where one is
/// missing, no number above 0, unknown, or has the key of another device.
std::vector<Device> read_catalog(const std::filesystem::path& path);

}  // namespace rooflm::devices
