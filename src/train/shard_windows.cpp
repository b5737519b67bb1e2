// Finding and copying windows, and evaluation's walk over them.
#include "train/shard_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "core/checked.h"
#include "core/error.h"

namespace rooflm::train {
namespace {

constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 31;

}  // namespace

ShardWindows::ShardWindows(const std::vector<std::filesystem::path>& paths, std::int64_t batch,
                           std::int64_t seq, std::uint32_t vocab_size, bool whole_batches)
    : vocab_size_(vocab_size) {
  if (batch <= 0 || seq <= 0 || batch > kMaxBatchTokens / seq) {
    throw core::UsageError(
        fmt::format("--batch {} --seq {}: expected positive numbers with a product up to {}", batch, seq,
                    kMaxBatchTokens));
  }
  if (paths.empty()) throw core::InputError("no token shards given");
  window_ = static_cast<std::uint64_t>(whole_batches ? core::Count(batch) * seq : core::Count(seq));
  for (const auto& path : paths) {
    const text::Shard& shard = shards_.emplace_back(path);
    total_tokens_ += shard.size();
    const std::uint64_t windows = shard.size() > 0 ? (shard.size() - 1) / window_ : 0;
    first_window_.push_back(first_window_.back() + windows);
  }
  if (count() == 0) {
    const auto longest =
        std::max_element(shards_.begin(), shards_.end(),
                         [](const text::Shard& a, const text::Shard& b) { return a.size() < b.size(); });
    throw core::InputError(fmt::format(
        "{}: {} tokens{}, expected at least {} ({} and the target of the last one); a smaller --seq{} needs "
        "fewer",
        longest->path().string(), longest->size(), shards_.size() > 1 ? ", the most of any given shard" : "",
        window_ + 1, whole_batches ? "--batch x --seq" : "--seq", whole_batches ? " or --batch" : ""));
  }
}

void ShardWindows::read(std::uint64_t index, std::int64_t length, Batch& batch, std::int64_t row) const {
  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), index);
  const auto at = static_cast<std::size_t>(after - first_window_.begin()) - 1;
  const text::Shard& shard = shards_[at];
  const std::uint64_t first = (index - first_window_[at]) * window_;
  const auto n = static_cast<std::size_t>(length);
  const auto offset = static_cast<std::size_t>(row) * n;
  const std::span tokens(batch.tokens.data() + offset, n);
  const std::span targets(batch.targets.data() + offset, n);
  shard.read(first, tokens);
  std::ranges::copy(tokens.subspan(1), targets.begin());
  shard.read(first + n, targets.last(1));
  if (vocab_size_ > 0) {
    shard.check_ids(first, tokens, vocab_size_);
    shard.check_ids(first + n, targets.last(1), vocab_size_);
  }
}

struct EvalBatches::Shards {
  ShardWindows windows;
};

EvalBatches::EvalBatches(const std::vector<std::filesystem::path>& shards, std::int64_t batch,
                         std::int64_t seq, std::uint32_t vocab_size)
    : shards_(std::make_unique<Shards>(Shards{ShardWindows(shards, batch, seq, vocab_size, true)})),
      window_(core::Count(batch) * seq) {}
EvalBatches::~EvalBatches() = default;

std::uint64_t EvalBatches::size() const { return shards_->windows.count(); }

void EvalBatches::read(std::uint64_t index, Batch& batch) const {
  batch.tokens.resize(static_cast<std::size_t>(window_));
  batch.targets.resize(static_cast<std::size_t>(window_));
  shards_->windows.read(index, window_, batch, 0);
}

}  // namespace rooflm::train
