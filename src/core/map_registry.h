// Which memory is the map of which file, for whoever has to explain a fault in it.
#pragma once

#include <cstddef>
#include <span>

namespace rooflm::core {

/// Remembers that `bytes` are a map of the file `path`, which is copied. Thread-safe.
void remember_map(std::span<const std::byte> bytes, const char* path);
/// `data` is where the map begins.
void forget_map(const std::byte* data);

/// From now on SIGBUS in a remembered map, which a file gives that became shorter than its map, ends the
/// process with a line on standard error that names the file, and with the exit code of InputError. Elsewhere
/// SIGBUS does what it did before. Nothing is cleaned up: what is unfinished is cleaned up by the next run,
/// as after a kill.
void explain_truncated_maps();

}  // namespace rooflm::core
