// What a training run reads: shards, and what is known about them.
#include "train/training_data.h"

#include <fmt/format.h>

#include "core/error.h"
#include "text/prepare.h"
#include "text/shard.h"

namespace rooflm::train {

TrainingData open_training_data(const std::vector<std::filesystem::path>& data,
                                const std::vector<std::filesystem::path>& val) {
  if (data.empty()) {
    throw core::UsageError("--data is missing: a directory made by 'rooflm data prepare', or shards");
  }
  TrainingData result;
  for (const auto& path : data) result.given.push_back(std::filesystem::absolute(path).lexically_normal());
  for (const auto& path : val) result.given_val.push_back(std::filesystem::absolute(path).lexically_normal());
  std::error_code ignored;
  if (std::filesystem::is_directory(data.front(), ignored)) {
    if (data.size() > 1) {
      throw core::UsageError(fmt::format("--data takes one directory or several shards, got {} and {}",
                                         data[0].string(), data[1].string()));
    }
    const text::PreparedData prepared = text::open_prepared(data.front());
    result.train = prepared.train.shards;
    result.val = prepared.val.shards;
    result.tokenizer = prepared.tokenizer;
    result.vocab_size = prepared.vocab_size;
    result.val_unigram_entropy = prepared.val_unigram_entropy;
  } else {
    result.train = data;
  }
  if (!val.empty()) {
    result.val = val;
    result.val_unigram_entropy.reset();
  }
  return result;
}

std::vector<ShardName> shard_names(const TrainingData& data) {
  std::vector<ShardName> names;
  for (const auto& path : data.train) {
    names.push_back({.name = path.filename().string(), .tokens = text::Shard(path).size()});
  }
  return names;
}

}  // namespace rooflm::train
