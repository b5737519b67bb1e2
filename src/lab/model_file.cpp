// Finding a model by what `--model` says.
#include "lab/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/names.h"
#include "model/huggingface.h"
#include "train/checkpoint.h"

namespace rooflm::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_preset(const std::string& model) {
  const auto& names = model::preset_names();
  return std::find(names.begin(), names.end(), model) != names.end();
}

/// The values of one file, each asked for by its key; what was not asked for is refused.
class JsonSizes {
 public:
  JsonSizes(const fs::path& path, std::string_view text)
      : path_(path.string()), values_(core::parse_json_object(text, path_, "the model")) {}

  /// Whether it is a config.json of Hugging Face, under whatever name.
  [[nodiscard]] bool is_of_hugging_face() const {
    return values_.contains("model_type") || values_.contains("architectures");
  }

  [[nodiscard]] bool has(const char* key) {
    known_.emplace_back(key);
    return values_.contains(key);
  }
  void read(const char* key, std::int64_t& value) {
    if (!has(key)) return;
    const json& found = values_[key];
    if (!found.is_number_integer() || found.get<std::int64_t>() < 0) {
      fail(key, "a whole number of at least 0");
    }
    value = found.get<std::int64_t>();
  }
  void read(const char* key, double& value) {
    if (!has(key)) return;
    if (!values_[key].is_number() || !(values_[key].get<double>() > 0)) fail(key, "a number above 0");
    value = values_[key].get<double>();
  }
  void read(const char* key, bool& value) {
    if (!has(key)) return;
    if (!values_[key].is_boolean()) fail(key, "true or false");
    value = values_[key].get<bool>();
  }
  void read(const char* key, std::string& value) {
    if (!has(key)) return;
    if (!values_[key].is_string()) fail(key, "a text");
    value = values_[key].get<std::string>();
  }
  void require(const char* key) const {
    if (!values_.contains(key)) throw core::InputError(fmt::format("{}: lacks the key \"{}\"", path_, key));
  }
  void refuse_others() const {
    for (const auto& [key, value] : values_.items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        throw core::InputError(path_ + ": " + core::unknown_name("key", key, known_));
      }
    }
  }

 private:
  [[noreturn]] void fail(const char* key, const char* expected) const {
    throw core::InputError(
        fmt::format("{}: \"{}\" is {}, expected {}", path_, key, core::shown(values_[key]), expected));
  }
  std::string path_;
  json values_;
  std::vector<std::string> known_;
};

/// "sizes" of sizes.json, "Qwen3-4B" of Qwen3-4B/config.json.
std::string name_of_file(const fs::path& path) {
  const fs::path folder = fs::absolute(path).parent_path();
  return path.stem() == "config" && folder.has_filename() ? folder.filename().string() : path.stem().string();
}

model::ModelConfig read_model_file(const fs::path& path) {
  const core::MappedFile file(path);
  JsonSizes values(path, file.text());
  model::ModelConfig config{.name = name_of_file(path)};
  if (values.is_of_hugging_face()) return model::parse_config(file.text(), path.string(), config.name);
  std::string arch;
  values.read("name", config.name);
  values.read("arch", arch);
  values.read("layers", config.layers);
  values.read("heads", config.heads);
  values.read("d_model", config.d_model);
  values.read("d_ff", config.d_ff);
  values.read("vocab", config.vocab);
  config.kv_heads = config.heads;
  config.head_dim = config.heads > 0 ? config.d_model / config.heads : 0;
  config.padded_vocab = config.vocab;
  const bool says_head_dim = values.has("head_dim");
  values.read("kv_heads", config.kv_heads);
  values.read("head_dim", config.head_dim);
  values.read("padded_vocab", config.padded_vocab);
  values.read("norm_eps", config.norm_eps);
  values.read("rope_theta", config.rope_theta);
  const bool says_max_seq = values.has("max_seq");
  const bool says_tied = values.has("tied_head");
  values.read("max_seq", config.max_seq);
  values.read("tied_head", config.tied_head);
  values.refuse_others();
  for (const char* key : {"arch", "layers", "heads", "d_model", "d_ff", "vocab"}) values.require(key);
  try {
    config.arch = core::parse<model::Arch>(arch);
    if (!says_max_seq && config.arch == model::Arch::gpt2) config.max_seq = 1024;
    if (!says_tied) config.tied_head = config.arch == model::Arch::gpt2;
    if (!says_head_dim && config.heads > 0 && config.d_model % config.heads != 0) {
      throw core::UsageError(
          fmt::format("heads {} does not divide d_model {}", config.heads, config.d_model));
    }
    model::validate(config);
    static_cast<void>(model::parameter_count(config));
  } catch (const core::UsageError& error) {
    throw core::InputError(fmt::format("{}: {}", path.string(), error.what()));
  }
  return config;
}

}  // namespace

bool is_model_directory(const std::string& model) {
  std::error_code ignored;
  return !is_preset(model) && fs::is_directory(model, ignored);
}

bool has_namesake(const std::string& model) {
  std::error_code ignored;
  return is_preset(model) && fs::is_directory(model, ignored);
}

model::ModelConfig find_model(const std::string& model) {
  if (is_preset(model)) return model::preset(model);
  if (is_model_directory(model)) return train::read_model_config(train::resolve_model_directory(model));
  std::error_code ignored;
  const bool is_path = model.ends_with(".json") || model.find('/') != std::string::npos;
  if (is_path || fs::exists(model, ignored)) return read_model_file(model);
  return model::preset(model);
}

}  // namespace rooflm::lab
