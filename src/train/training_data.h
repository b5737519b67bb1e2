// What a training run reads: shards, and what is known about them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "train/checkpoint.h"

namespace rooflm::train {

struct TrainingData {
  std::vector<std::filesystem::path> given, given_val;  ///< as the user said it, made absolute
  std::vector<std::filesystem::path> train;             ///< shards
  std::vector<std::filesystem::path> val;               ///< shards; empty: no evaluation
  std::filesystem::path tokenizer;                      ///< tokenizer.json; empty: unknown
  std::uint32_t vocab_size = 0;                         ///< of the tokenizer; 0: unknown
  /// Unigram entropy of the validation tokens, nats per token: a lower bound for models that ignore context.
  std::optional<double> val_unigram_entropy{};
};

/// `data` is one directory made by `rooflm data prepare`, or shards to train on; `val` are shards to evaluate
/// on instead of the directory's own. Throws core::InputError naming the path when something is missing, and
/// core::UsageError when there are no paths.
TrainingData open_training_data(const std::vector<std::filesystem::path>& data,
                                const std::vector<std::filesystem::path>& val = {});

/// Throws core::UsageError when one of `data`, which are directories made by `rooflm data prepare` or shards
/// in them, was prepared by another tokenizer than the model in `model`: its weights have other meanings for
/// the same ids. Where either has no tokenizer.json nothing is known, and nothing is thrown. Throws
/// core::InputError for a tokenizer.json that Tokenizer::load does not read, unless both files are the same.
void require_same_tokenizer(const std::filesystem::path& model,
                            const std::vector<std::filesystem::path>& data);

/// Names and sizes of the training shards, as a checkpoint remembers them.
std::vector<ShardName> shard_names(const TrainingData& data);

/// `vocab` rounded up to a multiple of 64, which suits matrix units.
constexpr std::int64_t padded_vocabulary(std::int64_t vocab) { return (vocab + 63) / 64 * 64; }

}  // namespace rooflm::train
