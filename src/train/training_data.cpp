// What a training run reads: shards, and what is known about them.
#include "train/training_data.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "text/prepare.h"
#include "text/shard.h"
#include "text/tokenizer.h"
#include "train/adapter_files.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";

/// The tokenizer of a prepared directory, or of the one that a shard is in; empty: unknown.
fs::path tokenizer_of(const fs::path& data) {
  std::error_code ignored;
  const fs::path directory = fs::is_directory(data, ignored) ? data : fs::absolute(data).parent_path();
  const bool is_prepared = fs::exists(directory / "meta.json", ignored);
  return is_prepared && fs::exists(directory / kTokenizer, ignored) ? directory / kTokenizer : fs::path();
}

/// Copies are what is usual, and cheaper to compare than to read.
bool encode_alike(const fs::path& a, const fs::path& b) {
  return core::MappedFile(a).text() == core::MappedFile(b).text() ||
         text::Tokenizer::load(a).encodes_as(text::Tokenizer::load(b));
}

}  // namespace

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

void require_same_tokenizer(const fs::path& model, const std::vector<fs::path>& data) {
  std::error_code ignored;
  const fs::path of_model = directory_with(kTokenizer, model) / kTokenizer;
  if (!fs::exists(of_model, ignored)) return;
  fs::path seen;  // shards of one directory have one tokenizer
  for (const fs::path& path : data) {
    const fs::path of_data = tokenizer_of(path);
    if (of_data.empty() || of_data == seen) continue;
    seen = of_data;
    if (!encode_alike(of_model, of_data)) {
      verify_model(model);  // one that is damaged is named as such
      throw core::UsageError(
          fmt::format("--data {} was prepared by another tokenizer than the model: {} and {} differ",
                      path.string(), of_data.string(), of_model.string()));
    }
  }
}

std::vector<ShardName> shard_names(const TrainingData& data) {
  std::vector<ShardName> names;
  for (const auto& path : data.train) {
    names.push_back({.name = path.filename().string(), .tokens = text::Shard(path).size()});
  }
  return names;
}

}  // namespace rooflm::train
