// Batches of tokens and targets from shards, prefetched by a thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace rooflm::train {

struct DataLoaderOptions {
  std::int64_t batch = 1;        ///< B
  std::int64_t seq = 1;          ///< T
  std::uint64_t seed = 0;        ///< of the shuffling
  bool shuffle = true;           ///< false: windows in the order of the files
  std::uint32_t vocab_size = 0;  ///< ids must be below it; 0: not checked
  std::size_t prefetch = 4;      ///< batches read ahead, at least 1
  /// Of the windows that all ranks together take next, `batch` of each, those of this one: in the order of
  /// ranks, so that all see the tokens of one rank with a batch of all.
  int ranks = 1, rank = 0;
};

/// Where a loader is: `position` windows of `epoch` have been consumed, by all ranks. With the same shards,
/// options and state the batches that follow are the same, bit for bit.
struct LoaderState {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  bool operator==(const LoaderState&) const = default;
};

/// One batch: two row-major arrays int32 [B, T]; targets[b, t] is the token that follows tokens[b, t].
struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

/// Endless training batches. Every shard is cut into windows of T tokens (targets one further; what is left
/// at a shard's end is not used); one epoch visits every window of all shards once, in an order that depends
/// on (seed, epoch) only. A batch takes the next B windows and may reach into the next epoch, so none is
/// dropped. Used by one thread.
class DataLoader {
 public:
  /// Starts reading ahead at `state`. Throws core::InputError when there are no shards, a shard is damaged,
  /// or none is long enough for one window of T + 1 tokens (shorter ones among longer ones are passed over),
  /// and core::UsageError when B or T is not positive or `state` does not fit.
  DataLoader(const std::vector<std::filesystem::path>& shards, const DataLoaderOptions& options,
             const LoaderState& state = {});
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  ~DataLoader();

  /// The next batch; it stays valid until the next call of next() or seek(). Waits if it is not read yet.
  /// Throws core::InputError naming the file, position, id and vocabulary when a token is not below
  /// vocab_size.
  const Batch& next();
  /// The state after the batches that next() has returned: what a checkpoint keeps.
  [[nodiscard]] LoaderState state() const;
  /// Continues at `state`; what was read ahead is dropped. Throws core::UsageError when it does not fit.
  void seek(const LoaderState& state);

  /// Windows of one epoch, over all shards.
  [[nodiscard]] std::uint64_t windows() const;
  /// Tokens in all shards.
  [[nodiscard]] std::uint64_t total_tokens() const;
  /// Seconds that next() has waited for the thread, in all.
  [[nodiscard]] double wait_s() const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

/// The batches of an evaluation: each shard in consecutive windows of B * T tokens (targets one further),
/// shard after shard, then the end. Batch i of a shard of n tokens holds tokens [i B T, (i + 1) B T); there
/// are (n - 1) / (B T).
class EvalBatches {
 public:
  /// Throws as DataLoader does; a window is B * T + 1 tokens here.
  EvalBatches(const std::vector<std::filesystem::path>& shards, std::int64_t batch, std::int64_t seq,
              std::uint32_t vocab_size = 0);
  EvalBatches(const EvalBatches&) = delete;
  EvalBatches& operator=(const EvalBatches&) = delete;
  ~EvalBatches();

  /// Number of batches.
  [[nodiscard]] std::uint64_t size() const;
  /// Of one batch, B * T.
  [[nodiscard]] std::uint64_t tokens() const { return static_cast<std::uint64_t>(window_); }
  /// Fills `batch` with batch `index`, 0 <= index < size(). Throws core::InputError on a token beyond
  /// vocab_size.
  void read(std::uint64_t index, Batch& batch) const;

 private:
  struct Shards;
  std::unique_ptr<Shards> shards_;
  std::int64_t window_ = 0;
};

}  // namespace rooflm::train
