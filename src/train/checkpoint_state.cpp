// state.json of a checkpoint.
#include "train/checkpoint_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/utf8_bytes.h"
#include "model/huggingface.h"
#include "train/adapter_files.h"
#include "train/checkpoint.h"
#include "train/checkpoint_parts.h"
#include "train/checksum.h"

namespace rooflm::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "rooflm training state";
/// Version 1 was under no checksum. Its checkpoints resume; what this version writes, it refuses.
constexpr std::uint64_t kFirstVersion = 1;
constexpr std::uint64_t kVersion = 2;

/// The end of the file, a checksum of all that stands before it, and the braces around its 16 digits.
constexpr std::string_view kSealBegin = ",\n  \"checksum\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";

std::string checksum_of_text(std::string_view text) {
  return text_of_sum(checksum(std::as_bytes(std::span(text))));
}

/// `text`, an object, with its checksum as the last key.
std::string sealed(std::string text) {
  text.erase(text.rfind('}'));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::string sum = checksum_of_text(text);
  return text.append(kSealBegin) + sum + std::string(kSealEnd);
}

/// Whether `text` ends in the checksum of what stands before it.
bool has_good_seal(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  const std::size_t seal_bytes = kSealBegin.size() + kDigits + kSealEnd.size();
  if (text.size() < seal_bytes || !text.ends_with(kSealEnd)) return false;
  const std::string_view body = text.substr(0, text.size() - seal_bytes);
  const std::string_view seal = text.substr(body.size());
  return seal.starts_with(kSealBegin) && seal.substr(kSealBegin.size(), kDigits) == checksum_of_text(body);
}

/// Reads keys and says where one is not as expected.
class Keys {
 public:
  Keys(const std::filesystem::path& path, std::string_view text, const json& root)
      : path_(path), text_(text), root_(root) {}

  template <class T>
  [[nodiscard]] T get(const char* key, const char* expected) const {
    try {
      return root_.at(key).get<T>();
    } catch (const json::exception&) {
      fail(key, expected);
    }
  }
  [[nodiscard]] std::uint64_t count(const char* key) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62U;
    const auto found = root_.find(key);
    if (found == root_.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > kMost) {
      fail(key, "a whole number from 0 to 2^62");
    }
    return found->get<std::uint64_t>();
  }
  [[nodiscard]] const json& object(const char* key) const {
    const auto found = root_.find(key);
    if (found == root_.end() || !found->is_object()) fail(key, "an object");
    return *found;
  }
  [[noreturn]] void fail(const char* key, const char* expected) const {
    const auto found = root_.is_object() ? root_.find(key) : root_.end();
    if (found == root_.end()) {
      throw core::InputError(fmt::format("{}: {} is missing, expected {}", path_.string(), key, expected));
    }
    throw core::InputError(fmt::format("{}: line {}: {} is {}, expected {}", path_.string(),
                                       core::line_of_key(text_, key), key, core::shown(*found), expected));
  }

 private:
  const std::filesystem::path& path_;
  std::string_view text_;
  const json& root_;
};

std::uint64_t read_version(const Keys& keys) {
  const std::uint64_t version = keys.count("version");
  if (version < kFirstVersion || version > kVersion)
    keys.fail("version", "1 or 2: another rooflm version wrote it");
  return version;
}

/// Throws unless the file is what a rooflm of this version wrote.
void check_seal(const std::filesystem::path& path, std::string_view text, std::uint64_t version,
                bool has_checksum) {
  if (!has_checksum && version == kFirstVersion) return;
  if (has_good_seal(text)) return;
  throw core::InputError(fmt::format(
      "{}: is damaged or was changed: it does not end with the checksum of its contents", path.string()));
}

/// Names of files of the checkpoint itself; its configuration, weights and optimizer state are among them.
void check_checksums(const Keys& keys, const std::map<std::string, std::string>& checksums, int parts) {
  const auto is_elsewhere = [](const auto& entry) {
    const std::string& name = entry.first;
    return name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos;
  };
  const auto is_weights = [](const auto& entry) {
    return entry.first.starts_with("model") || entry.first.starts_with("adapter_model");
  };
  for (int part = 0; part < parts; ++part) {
    if (!checksums.contains(part_name(part, parts)))
      keys.fail("checksums", fmt::format("one of {}", part_name(part, parts)).c_str());
  }
  if (parts > 0 && checksums.contains("config.json") && std::ranges::none_of(checksums, is_elsewhere)) return;
  if (std::ranges::any_of(checksums, is_elsewhere) || std::ranges::none_of(checksums, is_weights) ||
      !checksums.contains("config.json") || !checksums.contains("optimizer.safetensors")) {
    keys.fail("checksums", "those of config.json, model.safetensors and optimizer.safetensors");
  }
}

std::vector<std::string> texts_of(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> texts;
  for (const auto& path : paths) texts.push_back(core::bytes_as_utf8(path.string()));
  return texts;
}

}  // namespace

std::string state_json(const CheckpointState& state) {
  ordered_json root;
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["step"] = state.step;
  root["tokens"] = state.tokens;
  root["best_val_loss"] = state.best_val_loss ? ordered_json(*state.best_val_loss) : ordered_json(nullptr);
  root["loader"] = {{"epoch", state.loader.epoch}, {"position", state.loader.position}};
  root["model"] = {{"name", core::bytes_as_utf8(state.model_name)}, {"padded_vocab", state.padded_vocab}};
  root["data"] = texts_of(state.data);
  root["val_data"] = texts_of(state.val_data);
  root["shards"] = ordered_json::array();
  for (const ShardName& shard : state.shards) {
    root["shards"].push_back({{"name", core::bytes_as_utf8(shard.name)}, {"tokens", shard.tokens}});
  }
  root["options"] = ordered_json::object();
  for (const auto& [name, text] : state.options) root["options"][name] = core::bytes_as_utf8(text);
  if (!state.gemm_choices.empty()) root["gemm_choices"] = state.gemm_choices;
  if (state.parts > 0) root["parts"] = state.parts;
  root["checksums"] = state.checksums;
  return sealed(root.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint) {
  const auto path = checkpoint / "state.json";
  const core::MappedFile file(path);
  const std::string_view text = file.text();
  const json root = core::parse_json_object(text, path.string(), "the state");
  const Keys keys(path, text, root);
  if (keys.get<std::string>("format", kFormat) != kFormat) keys.fail("format", kFormat);
  const std::uint64_t version = read_version(keys);
  CheckpointState state;
  state.step = static_cast<std::int64_t>(keys.count("step"));
  state.tokens = keys.count("tokens");
  if (root.contains("best_val_loss") && !root["best_val_loss"].is_null()) {
    state.best_val_loss = keys.get<double>("best_val_loss", "a number or null");
  }
  const Keys loader(path, text, keys.object("loader"));
  state.loader = {.epoch = loader.count("epoch"), .position = loader.count("position")};
  const Keys model(path, text, keys.object("model"));
  state.model_name = core::bytes_from_utf8(model.get<std::string>("name", "a text"));
  state.padded_vocab = static_cast<std::int64_t>(model.count("padded_vocab"));
  for (const auto& [key, paths] : {std::pair{"data", &state.data}, {"val_data", &state.val_data}}) {
    for (const auto& saved : keys.get<std::vector<std::string>>(key, "a list of paths"))
      paths->emplace_back(core::bytes_from_utf8(saved));
  }
  for (const json& entry : keys.get<std::vector<json>>("shards", "a list of shards")) {
    const Keys shard(path, text, entry);
    state.shards.push_back(
        {core::bytes_from_utf8(shard.get<std::string>("name", "a file name")), shard.count("tokens")});
  }
  state.options = keys.get<OptionTexts>("options", "an object of texts");
  for (auto& [name, value] : state.options) value = core::bytes_from_utf8(value);
  if (root.contains("gemm_choices")) state.gemm_choices = keys.get<std::string>("gemm_choices", "a text");
  state.checksums = keys.get<std::map<std::string, std::string>>("checksums", "an object of texts");
  if (root.contains("parts")) {
    constexpr std::uint64_t kMost = 1 << 20;
    const std::uint64_t parts = keys.count("parts");
    if (parts > kMost) keys.fail("parts", "a number of ranks");
    state.parts = static_cast<int>(parts);
  }
  check_checksums(keys, state.checksums, state.parts);
  // Last, so that a value that cannot be is named.
  check_seal(path, text, version, root.contains("checksum"));
  return state;
}

std::string text_of_sum(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

void verify_file(const std::filesystem::path& path, const std::string& saved) {
  const std::string found = text_of_sum(checksum(core::MappedFile(path).bytes()));
  if (found == saved) return;
  throw core::InputError(
      fmt::format("{}: is damaged or was changed: its checksum is {}, state.json expects {}", path.string(),
                  found, saved));
}

model::ModelConfig read_checkpoint_config(const std::filesystem::path& checkpoint,
                                          const CheckpointState& state) {
  model::ModelConfig config = model::read_config(checkpoint);
  // Last, so that a value that cannot be is named.
  verify_file(checkpoint / "config.json", state.checksums.at("config.json"));
  config.name = state.model_name;
  config.padded_vocab = state.padded_vocab;
  if (config.padded_vocab < config.vocab) {
    throw core::InputError(fmt::format("{}: padded_vocab {} is below the vocab_size {} of config.json",
                                       (checkpoint / "state.json").string(), config.padded_vocab,
                                       config.vocab));
  }
  return config;
}

model::ModelConfig read_model_config(const std::filesystem::path& directory) {
  std::error_code ignored;
  const std::filesystem::path described = directory_with("config.json", directory);
  if (described != directory) return read_model_config(described);
  if (!std::filesystem::exists(directory / "state.json", ignored)) return model::read_config(directory);
  return read_checkpoint_config(directory, read_checkpoint_state(directory));
}

}  // namespace rooflm::train
