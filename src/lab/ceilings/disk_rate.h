// How fast a disk gives the text that a step reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "record/rows.h"

namespace rooflm::lab {

struct DiskRate {
  double byte_per_s = 0;
  bool is_direct = false;  ///< past the page cache; otherwise the system may have had some of it in memory
};

/// Reads the files one after the other in large blocks, for half a second at most. Nothing where they are
/// empty or cannot be read.
std::optional<DiskRate> disk_rate(std::span<const std::filesystem::path> files);

/// "disk_byte_per_s", and "input_bytes": what a step of so many tokens reads of these shards.
std::vector<record::Fact> disk_facts(std::span<const std::filesystem::path> shards, std::int64_t tokens);

}  // namespace rooflm::lab
