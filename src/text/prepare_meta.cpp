// Writes and reads what prepared data says of itself.
#include "text/prepare_meta.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/file.h"

namespace rooflm::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

Json split_json(const SplitInfo& split) {
  Json shards = Json::array();
  for (const auto& shard : split.shards) shards.push_back(shard.filename().string());
  return {
      {"documents", split.documents}, {"bytes", split.bytes}, {"tokens", split.tokens}, {"shards", shards}};
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

/// Reads a key with the type of its target; names the key when it is missing or of another type.
template <class T>
T value_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw core::InputError(fmt::format("{}: '{}' is missing", where, key));
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    throw core::InputError(
        fmt::format("{}: '{}' is {}, of another type than expected", where, key, found->dump()));
  }
}

std::optional<double> optional_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return value_at<double>(object, key, where);
}

SplitInfo read_split(const Json& file, const char* key, const std::filesystem::path& directory,
                     const std::string& where) {
  const auto object = value_at<Json>(file, key, where);
  const std::string inner = fmt::format("{}: '{}'", where, key);
  if (!object.is_object()) throw core::InputError(inner + " is no object");
  SplitInfo split;
  split.documents = value_at<std::uint64_t>(object, "documents", inner);
  split.bytes = value_at<std::uint64_t>(object, "bytes", inner);
  split.tokens = value_at<std::uint64_t>(object, "tokens", inner);
  for (const auto& name : value_at<std::vector<std::string>>(object, "shards", inner)) {
    split.shards.push_back(directory / std::filesystem::path(name).filename());
    std::error_code error;
    if (!std::filesystem::exists(split.shards.back(), error)) {
      throw core::InputError(fmt::format("{}: shard {} is missing", inner, split.shards.back().string()));
    }
  }
  return split;
}

}  // namespace

double unigram_entropy(std::span<const std::uint64_t> counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double sum = 0;
  for (const auto count : counts) {
    const double p = static_cast<double>(count) / std::max(total, 1.0);
    if (count > 0) sum -= p * std::log(p);
  }
  return sum;
}

double unigram_cross_entropy(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> model) {
  const auto n = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  const auto model_n = static_cast<double>(std::accumulate(model.begin(), model.end(), std::uint64_t{0}));
  const double denominator = model_n + static_cast<double>(model.size());
  double sum = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] == 0) continue;
    sum -= static_cast<double>(counts[id]) * std::log((static_cast<double>(model[id]) + 1) / denominator);
  }
  return sum / std::max(n, 1.0);
}

std::string meta_json(const PreparedData& data) {
  const Json json = {
      {"format", "rooflm prepared data"},
      {"version", kVersion},
      {"tokenizer", data.tokenizer.filename().string()},
      {"vocab_size", data.vocab_size},
      {"train", split_json(data.train)},
      {"val", split_json(data.val)},
      {"train_unigram_entropy_nats_per_token", data.train_unigram_entropy},
      {"val_unigram_entropy_nats_per_token", optional_json(data.val_unigram_entropy)},
      {"val_unigram_cross_entropy_nats_per_token", optional_json(data.val_unigram_cross_entropy)}};
  return json.dump(2) + "\n";
}

PreparedData open_prepared(const std::filesystem::path& directory) {
  const auto path = directory / "meta.json";
  const core::MappedFile file(path);
  const std::string where = path.string();
  const Json json = Json::parse(file.text(), nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    throw core::InputError(where + ": no JSON object; expected what 'rooflm data prepare' writes");
  }
  const int version = value_at<int>(json, "version", where);
  if (version != kVersion) {
    throw core::InputError(fmt::format("{}: version {}, expected {}", where, version, kVersion));
  }
  PreparedData data;
  data.directory = directory;
  data.tokenizer =
      directory / std::filesystem::path(value_at<std::string>(json, "tokenizer", where)).filename();
  data.vocab_size = value_at<std::uint32_t>(json, "vocab_size", where);
  data.train = read_split(json, "train", directory, where);
  data.val = read_split(json, "val", directory, where);
  data.train_unigram_entropy = value_at<double>(json, "train_unigram_entropy_nats_per_token", where);
  data.val_unigram_entropy = optional_at(json, "val_unigram_entropy_nats_per_token", where);
  data.val_unigram_cross_entropy = optional_at(json, "val_unigram_cross_entropy_nats_per_token", where);
  return data;
}

}  // namespace rooflm::text
