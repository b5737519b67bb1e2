// Knows which memory is mapped from which file, to explain faults in it.
#pragma once

#include <cstddef>
#include <span>

namespace rooflm::core {

/// Registers `bytes` as a map of the file `path`, which is copied. Thread-safe.
void remember_map(std::span<const std::byte> bytes, const char* path);
/// `data` is the start of the map.
void forget_map(const std::byte* data);

/// Installs a SIGBUS handler. A fault in a registered map, caused by a file that was truncated while mapped,
/// ends the process with a line on standard error that names the file, and with the exit code of InputError.
/// Any other SIGBUS is handled as before. Nothing is cleaned up; the next run cleans up unfinished files, as
/// after a kill.
void explain_truncated_maps();

}  // namespace rooflm::core
