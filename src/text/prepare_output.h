// A directory whose files are replaced together or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/system/descriptor.h"

namespace rooflm::text {

/// Whether prepare() writes files of this name: shards, tokenizer.json, meta.json.
bool is_prepared_name(const std::string& name);

/// Throws core::InputError when `directory` is a file, core::UsageError when it holds prepared data and
/// `overwrite` is false.
void check_replaceable(const std::filesystem::path& directory, bool overwrite);

/// Collects new files in the folder ".rooflm-prepare" inside the output directory and moves them into place
/// at the end. Destroyed before commit(), it removes all it made and leaves what was there. The folder is
/// locked: what a process that was killed left in it is removed by the next.
class StagedOutput {
 public:
  /// Makes `directory` (and its parents) if missing. Throws core::UsageError when it holds prepared data and
  /// `overwrite` is false or another process is preparing data there, and core::InputError when it cannot be
  /// made or written.
  StagedOutput(const std::filesystem::path& directory, bool overwrite);
  StagedOutput(const StagedOutput&) = delete;
  StagedOutput& operator=(const StagedOutput&) = delete;
  ~StagedOutput();

  /// Where to write the new file `name`.
  [[nodiscard]] std::filesystem::path path_for(const std::filesystem::path& name) const {
    return staging_ / name;
  }
  /// Replaces the prepared data of the directory by what is staged. Throws core::InputError, with the old
  /// files back.
  void commit();

 private:
  using Moves = std::vector<std::pair<std::filesystem::path, std::filesystem::path>>;
  void move_all(const Moves& moves) const;
  void open_staging();
  void remove_made() const;

  std::filesystem::path directory_;
  std::filesystem::path staging_;
  core::Descriptor lock_;       ///< of staging_
  std::filesystem::path made_;  ///< the uppermost directory that did not exist, or empty
};

}  // namespace rooflm::text
