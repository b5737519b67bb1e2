// Opens a file as a run record, or says why it is not one. Private to the room.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "record/database.h"
#include "record/migrate.h"

namespace rooflm::record {

/// Whether `path` is a file that begins like a run record, whatever its version and state. Throws
/// core::InputError if it cannot be read.
[[nodiscard]] bool looks_like_record(const std::filesystem::path& path);

/// Opens a record of schema `version` or older for reading, as a snapshot: later writes are not seen. Throws
/// core::InputError, naming the file, for anything else.
[[nodiscard]] std::unique_ptr<Database> open_record(const std::filesystem::path& path, int version,
                                                    std::span<const Migration> steps);

}  // namespace rooflm::record
