// state.json of a checkpoint (for this room's sources).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace rooflm::train {

struct CheckpointState;

/// The text of state.json; checkpoint.h reads it back.
std::string state_json(const CheckpointState& state);

/// A checksum as state.json has it.
std::string text_of_sum(std::uint64_t sum);
/// Throws core::InputError that names the file when its checksum is not `saved`.
void verify_file(const std::filesystem::path& path, const std::string& saved);

}  // namespace rooflm::train
