// A directory whose files are replaced together or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rooflm::text {

/// Whether prepare() writes files of this name: shards, tokenizer.json, meta.json.
bool is_prepared_name(const std::string& name);

/// Collects new files in a folder inside the output directory and moves them into place at the end. Destroyed
/// before commit(), it removes all it made and leaves what was there.
class StagedOutput {
 public:
  /// Makes `directory` (and its parents) if missing. Throws core::UsageError when it holds prepared data and
  /// `overwrite` is false, and core::InputError when it cannot be made or written.
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
  void remove_made() const;

  std::filesystem::path directory_;
  std::filesystem::path staging_;
  std::filesystem::path made_;  ///< the uppermost directory that did not exist, or empty
};

}  // namespace rooflm::text
