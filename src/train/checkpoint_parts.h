// Checkpoints of parts: a file of each rank that wrote one, which holds the elements of weights and optimizer
// state that this rank had.
//
// part-00002-of-00004.safetensors holds each tensor of which the rank had something as F32 [elements]; the
// metadata of that name say which elements of the whole those are, in their order: "begin count stride times"
// for runs of `count` elements at begin, begin + stride, ... Groups of the four numbers follow each other.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "model/safetensors.h"
#include "train/session.h"

namespace rooflm::train {

/// "part-00002-of-00004.safetensors" of rank 1 of 4.
std::string part_name(int rank, int ranks);

/// Writes what this rank of the session has, and no rank before it has alike. Throws core::InputError when it
/// cannot be written, core::CheckFailed for numbers that are not finite.
void write_part(const std::filesystem::path& path, const Session& session,
                const core::OnProgress& on_progress);

/// All files of a checkpoint of parts.
class PartFiles {
 public:
  /// Throws core::InputError that names the first that is missing or damaged.
  PartFiles(const std::filesystem::path& checkpoint, int parts);
  /// The whole tensor. Throws core::InputError when an element is in none of the files, not finite, or beyond
  /// the tensor.
  void read(const std::string& name, std::span<float> whole) const;

 private:
  std::filesystem::path checkpoint_;
  std::vector<model::SafetensorsFile> files_;
};

/// The parts of a checkpoint; nothing for other directories. Throws as read_checkpoint_state and PartFiles.
std::optional<PartFiles> open_parts(const std::filesystem::path& directory);

}  // namespace rooflm::train
