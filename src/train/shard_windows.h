// Shards cut into windows of equal length, numbered through.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "text/shard.h"
#include "train/data_loader.h"

namespace rooflm::train {

/// The windows of several shards. Window w of a shard is its tokens [w L, (w + 1) L] for a window length L: L
/// inputs and the target of the last one. What is left at a shard's end is not used. Reading is thread-safe.
class ShardWindows {
 public:
  /// Windows of `rows` x `seq` tokens if `whole_batches`, of `seq` otherwise. Throws core::UsageError for
  /// sizes that are not positive and core::InputError when no shard is given or none holds a window.
  ShardWindows(const std::vector<std::filesystem::path>& paths, std::int64_t batch, std::int64_t seq,
               std::uint32_t vocab_size, bool whole_batches = false);

  /// Number of windows, over all shards.
  [[nodiscard]] std::uint64_t count() const { return first_window_.back(); }
  [[nodiscard]] std::uint64_t total_tokens() const { return total_tokens_; }
  /// Copies `length` tokens of window `index` into row `row` of `batch`, whose arrays have room; checks their
  /// ids.
  void read(std::uint64_t index, std::int64_t length, Batch& batch, std::int64_t row) const;

 private:
  std::vector<text::Shard> shards_;
  std::vector<std::uint64_t> first_window_ = {0};  ///< of each shard, and the total
  std::uint64_t window_ = 0;
  std::uint64_t total_tokens_ = 0;
  std::uint32_t vocab_size_ = 0;
};

}  // namespace rooflm::train
