// state.json of a checkpoint.
#include "train/checkpoint_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8_bytes.h"
#include "model/huggingface.h"
#include "train/checkpoint.h"

namespace rooflm::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "rooflm training state";
constexpr int kVersion = 1;

/// Reads keys and says where one is not as expected.
class Keys {
 public:
  Keys(const std::filesystem::path& path, const json& root) : path_(path), root_(root) {}

  template <class T>
  [[nodiscard]] T get(const char* key, const char* expected) const {
    try {
      return root_.at(key).get<T>();
    } catch (const json::exception&) {
      fail(key, expected);
    }
  }
  [[nodiscard]] std::uint64_t count(const char* key) const {
    const auto found = root_.find(key);
    if (found == root_.end() || !found->is_number_unsigned()) fail(key, "a whole number, 0 or more");
    return found->get<std::uint64_t>();
  }
  [[nodiscard]] const json& object(const char* key) const {
    const auto found = root_.find(key);
    if (found == root_.end() || !found->is_object()) fail(key, "an object");
    return *found;
  }
  [[noreturn]] void fail(const char* key, const char* expected) const {
    const auto found = root_.is_object() ? root_.find(key) : root_.end();
    throw core::InputError(fmt::format("{}: {} is {}, expected {}", path_.string(), key,
                                       found == root_.end() ? "missing" : found->dump(), expected));
  }

 private:
  const std::filesystem::path& path_;
  const json& root_;
};

json parse(const std::filesystem::path& path) {
  const core::MappedFile file(path);
  try {
    return json::parse(file.text());
  } catch (const json::parse_error& error) {
    throw core::InputError(fmt::format("{}: no JSON at byte {}", path.string(), error.byte));
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
  root["checksums"] = state.checksums;
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint) {
  const auto path = checkpoint / "state.json";
  const json root = parse(path);
  const Keys keys(path, root);
  if (keys.get<std::string>("format", kFormat) != kFormat) keys.fail("format", kFormat);
  if (keys.count("version") != kVersion) keys.fail("version", "1: it was written by another rooflm");
  CheckpointState state;
  state.step = static_cast<std::int64_t>(keys.count("step"));
  state.tokens = keys.count("tokens");
  if (root.contains("best_val_loss") && !root["best_val_loss"].is_null()) {
    state.best_val_loss = keys.get<double>("best_val_loss", "a number or null");
  }
  const Keys loader(path, keys.object("loader"));
  state.loader = {.epoch = loader.count("epoch"), .position = loader.count("position")};
  const Keys model(path, keys.object("model"));
  state.model_name = core::bytes_from_utf8(model.get<std::string>("name", "a text"));
  state.padded_vocab = static_cast<std::int64_t>(model.count("padded_vocab"));
  for (const auto& [key, paths] : {std::pair{"data", &state.data}, {"val_data", &state.val_data}}) {
    for (const auto& text : keys.get<std::vector<std::string>>(key, "a list of paths"))
      paths->emplace_back(core::bytes_from_utf8(text));
  }
  for (const json& entry : keys.get<std::vector<json>>("shards", "a list of shards")) {
    const Keys shard(path, entry);
    state.shards.push_back(
        {core::bytes_from_utf8(shard.get<std::string>("name", "a file name")), shard.count("tokens")});
  }
  state.options = keys.get<OptionTexts>("options", "an object of texts");
  for (auto& [name, text] : state.options) text = core::bytes_from_utf8(text);
  if (root.contains("gemm_choices")) state.gemm_choices = keys.get<std::string>("gemm_choices", "a text");
  state.checksums = keys.get<std::map<std::string, std::string>>("checksums", "an object of texts");
  return state;
}

model::ModelConfig read_checkpoint_config(const std::filesystem::path& checkpoint,
                                          const CheckpointState& state) {
  model::ModelConfig config = model::read_config(checkpoint);
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
  if (!std::filesystem::exists(directory / "state.json", ignored)) return model::read_config(directory);
  return read_checkpoint_config(directory, read_checkpoint_state(directory));
}

}  // namespace rooflm::train
