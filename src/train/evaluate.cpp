// Validation loss of a model.
#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/checked.h"
#include "text/shard.h"

namespace rooflm::train {

namespace {

Evaluation finished(Evaluation result, std::uint64_t count, double sum) {
  result.batches = count;
  result.loss = sum / static_cast<double>(count);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace

std::unique_ptr<EvalBatches> open_validation(const std::vector<std::filesystem::path>& shards,
                                             std::int64_t& batch, std::int64_t seq,
                                             std::uint32_t vocab_size) {
  std::uint64_t longest = 0;
  for (const auto& shard : shards) longest = std::max(longest, text::Shard(shard).size());
  const auto fits = [&](std::int64_t b) {
    return static_cast<std::uint64_t>(core::Count(b) * seq) < longest;
  };
  while (batch > 1 && !fits(batch)) batch /= 2;
  if (!fits(batch)) return nullptr;
  return std::make_unique<EvalBatches>(shards, batch, seq, vocab_size);
}

Evaluation evaluate(Session& session, const EvalBatches& batches, std::uint64_t most_batches,
                    EvaluationShare share) {
  Evaluation result;
  Batch batch;
  const auto ranks = static_cast<std::uint64_t>(share.ranks);
  const auto copies = static_cast<std::uint64_t>(share.copies);
  const std::uint64_t most = most_batches > UINT64_MAX / copies ? UINT64_MAX : most_batches * copies;
  const std::uint64_t count = std::min(batches.size(), most);
  double sum = 0;
  for (std::uint64_t i = 0; i < count;) {
    // What is left over at the end all ranks take: the mean over them is then that of one.
    const std::uint64_t at_once = count - i >= ranks ? ranks : 1;
    batches.read(i + (at_once > 1 ? static_cast<std::uint64_t>(share.rank) : 0), batch);
    sum += session.loss(batch) * static_cast<double>(at_once);
    result.tokens += batch.tokens.size() * at_once;
    i += at_once;
  }
  return finished(result, count, sum);
}

Evaluation evaluate(Session& session, const EvalBatches& batches, std::uint64_t most_batches,
                    ranks::Transport& ranks) {
  Evaluation result;
  Batch batch;
  const std::uint64_t count = std::min(batches.size(), most_batches);
  const auto size = static_cast<std::uint64_t>(ranks.size());
  double sum = 0;
  ranks.set_op("evaluating");
  for (std::uint64_t i = 0; i < count; i += size) {
    const std::uint64_t own = i + static_cast<std::uint64_t>(ranks.rank());
    double loss = 0;
    if (own < count) {
      batches.read(own, batch);
      loss = session.loss(batch);
    }
    ranks.set_step(static_cast<std::int64_t>(i));
    const std::vector<double> losses = ranks::numbers(ranks, loss);
    for (std::uint64_t k = 0; k < std::min(size, count - i); ++k) sum += losses[k];
  }
  result.tokens = count * batches.tokens();
  return finished(result, count, sum);
}

}  // namespace rooflm::train
