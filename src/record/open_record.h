// Opening a file as a run record, or saying why it is none. Private to the room.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "record/database.h"
#include "record/migrate.h"

namespace rooflm::record {

/// Whether `path` is a file that begins as a run record does, whatever its version and its state. Throws
/// core::InputError when it cannot be read.
[[nodiscard]] bool looks_like_record(const std::filesystem::path& path);

/// Opens a record of schema `version` or older for reading, as it is at this moment: what is written
/// later is not seen. Throws core::InputError, naming the file, for everything that is no such record.
[[nodiscard]] std::unique_ptr<Database> open_record(const std::filesystem::path& path, int version,
                                                    std::span<const Migration> steps);

}  // namespace rooflm::record
