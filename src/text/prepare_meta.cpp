// Writes and reads what prepared data says of itself.
#include "text/prepare_meta.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/printable.h"
#include "text/bpe_model.h"

namespace rooflm::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "rooflm prepared data";
constexpr std::uint64_t kVersion = 1;

Json split_json(const SplitInfo& split) {
  Json shards = Json::array();
  for (const auto& shard : split.shards) shards.push_back(shard.filename().string());
  return {
      {"documents", split.documents}, {"bytes", split.bytes}, {"tokens", split.tokens}, {"shards", shards}};
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

/// The keys of one object of meta.json. Every message names the file, the line and the key.
class MetaKeys {
 public:
  MetaKeys(const nlohmann::json& object, std::string_view text, std::string where)
      : object_(object), text_(text), where_(std::move(where)) {}

  [[nodiscard]] std::uint64_t count(const char* key, std::uint64_t most) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
      refuse(key, fmt::format("a whole number from 0 to {}", most));
    }
    return value.get<std::uint64_t>();
  }
  [[nodiscard]] double nats(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= 0)) refuse(key, "a number of at least 0");
    return value.get<double>();
  }
  [[nodiscard]] std::optional<double> optional_nats(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? std::nullopt : std::optional(nats(key));
  }
  /// The name of a file in the same directory.
  [[nodiscard]] std::string file_name(const char* key) const { return file_name(at(key), key); }
  [[nodiscard]] std::vector<std::string> file_names(const char* key) const {
    const nlohmann::json& list = at(key);
    if (!list.is_array()) refuse(key, "a list of file names");
    std::vector<std::string> names;
    for (const nlohmann::json& name : list) names.push_back(file_name(name, key));
    return names;
  }
  [[nodiscard]] MetaKeys object(const char* key) const {
    if (!at(key).is_object()) refuse(key, "an object");
    return {at(key), text_, fmt::format("{}: '{}'", where_, key)};
  }
  void require_text(const char* key, std::string_view expected) const {
    if (at(key) != nlohmann::json(expected)) refuse(key, std::string(expected));
  }
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw core::InputError(
        fmt::format("{}: line {}: '{}' {}", where_, core::line_of_key(text_, key), key, what));
  }

 private:
  [[nodiscard]] const nlohmann::json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw core::InputError(fmt::format("{}: '{}' is missing", where_, key));
    return *found;
  }
  [[nodiscard]] std::string file_name(const nlohmann::json& value, const char* key) const {
    if (!value.is_string()) refuse(key, "file names");
    auto name = value.get<std::string>();
    const bool is_name = !name.empty() && name != "." && name != ".." &&
                         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    if (!is_name) refuse(key, "names of files in the same directory");
    return name;
  }
  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail(key, fmt::format("is {}, expected {}", core::shown(at(key)), expected));
  }

  const nlohmann::json& object_;
  std::string_view text_;
  std::string where_;
};

SplitInfo read_split(const MetaKeys& file, const char* key, const std::filesystem::path& directory) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 53U;  // what every reader of JSON holds exactly
  const MetaKeys keys = file.object(key);
  SplitInfo split;
  split.documents = keys.count("documents", kMost);
  split.bytes = keys.count("bytes", kMost);
  split.tokens = keys.count("tokens", kMost);
  for (const std::string& name : keys.file_names("shards")) {
    split.shards.push_back(directory / name);
    std::error_code error;
    if (!std::filesystem::exists(split.shards.back(), error)) {
      file.fail(key, fmt::format("names the shard {}, which is missing", core::printable(name)));
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
      {"format", kFormat},
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
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) {
    throw core::InputError(fmt::format(
        "cannot open {}: No such file or directory (made by `rooflm data prepare`)", path.string()));
  }
  const core::MappedFile file(path);
  const std::string where = path.string();
  const nlohmann::json json =
      core::parse_json_object(file.text(), where, "meta.json (as 'rooflm data prepare' writes it)");
  const MetaKeys keys(json, file.text(), where);
  keys.require_text("format", kFormat);
  if (const std::uint64_t version = keys.count("version", UINT32_MAX); version != kVersion) {
    keys.fail("version", fmt::format("says version {}, expected {}", version, kVersion));
  }
  PreparedData data;
  data.directory = directory;
  data.tokenizer = directory / keys.file_name("tokenizer");
  data.vocab_size = static_cast<std::uint32_t>(keys.count("vocab_size", kMaxVocab));
  data.train = read_split(keys, "train", directory);
  data.val = read_split(keys, "val", directory);
  data.train_unigram_entropy = keys.nats("train_unigram_entropy_nats_per_token");
  data.val_unigram_entropy = keys.optional_nats("val_unigram_entropy_nats_per_token");
  data.val_unigram_cross_entropy = keys.optional_nats("val_unigram_cross_entropy_nats_per_token");
  return data;
}

}  // namespace rooflm::text
