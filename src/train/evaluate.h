// Validation loss of a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "ranks/transport.h"
#include "train/data_loader.h"
#include "train/session.h"

namespace rooflm::train {

struct Evaluation {
  double loss = 0;            ///< mean cross-entropy of all tokens in nats
  double perplexity = 0;      ///< exp(loss)
  std::uint64_t tokens = 0;   ///< predicted
  std::uint64_t batches = 0;  ///< of B * T tokens
};

/// The batches of `shards` at the largest B of `batch`, batch / 2, batch / 4, ... that one of them is long
/// enough for, and that B in `batch`; nullptr when there is none. Throws core::InputError for a damaged
/// shard.
std::unique_ptr<EvalBatches> open_validation(const std::vector<std::filesystem::path>& shards,
                                             std::int64_t& batch, std::int64_t seq, std::uint32_t vocab_size);

/// The mean over the first `most_batches` batches (all by default), which are consecutive windows of B * T
/// tokens. Needs the session's loss engine for the same B and T. Throws core::InputError on a token beyond
/// the vocabulary.
///
/// Of several data-parallel ranks each takes every ranks-th batch: together they walk the first copies *
/// `most_batches`, as one rank does with batches of all, and all get the same result.
/// Ranks that share sequences in training evaluate whole ones, too; `copies` counts the batches of a step.
struct EvaluationShare {
  int ranks = 1, rank = 0;
  int copies = 1;
};
Evaluation evaluate(Session& session, const EvalBatches& batches, std::uint64_t most_batches = UINT64_MAX,
                    EvaluationShare share = {});

/// For ranks with the whole model each: they take turns at the batches, and all get the bit-identical result
/// of a single rank. Throws ranks::RankLost, too.
Evaluation evaluate(Session& session, const EvalBatches& batches, std::uint64_t most_batches,
                    ranks::Transport& ranks);

}  // namespace rooflm::train
