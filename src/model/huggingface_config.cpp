// config.json of Hugging Face directories: conversion to and from ModelConfig.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "model/huggingface.h"

namespace rooflm::model {
namespace {

using core::InputError;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;  // keeps every product of two sizes in 64 bits

constexpr std::int64_t kMostLayers = 10000;

/// The keys of one config.json. null counts as absent, as in transformers.
class Keys {
 public:
  explicit Keys(const std::filesystem::path& path) : path_(path.string()) {
    const core::MappedFile file(path);
    root_ = core::parse_json_object(file.text(), path_, "config.json");
  }

  /// Keys that replace those of a file.
  Keys(const std::filesystem::path& path, json root) : path_(path.string()), root_(std::move(root)) {}

  [[nodiscard]] const json& root() const { return root_; }
  [[nodiscard]] std::int64_t size(const char* key) const {
    if (const auto value = optional_size(key)) return *value;
    throw InputError(fmt::format("{}: the key {} is missing, expected a positive integer", path_, key));
  }
  [[nodiscard]] std::optional<std::int64_t> optional_size(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const bool is_size = value->is_number_unsigned() && value->get<std::uint64_t>() > 0 &&
                         value->get<std::uint64_t>() < static_cast<std::uint64_t>(kLargestSize);
    if (!is_size) refuse(key, "a positive integer below 2^31");
    return value->get<std::int64_t>();
  }
  [[nodiscard]] double positive(const char* key, double otherwise) const {
    const json* value = find(key);
    return value == nullptr ? otherwise : positive(*value, key);
  }
  [[nodiscard]] double positive(const json& value, const char* key) const {
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      refuse(key, "a positive number");
    }
    return value.get<double>();
  }
  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
  }
  /// A string that must be one of `known`; the first one if absent.
  std::string one_of(const char* key, const std::vector<std::string>& known) const {
    const json* value = find(key);
    if (value == nullptr) return known.front();
    if (value->is_string() && std::ranges::find(known, value->get<std::string>()) != known.end()) {
      return value->get<std::string>();
    }
    std::string expected;
    for (const std::string& name : known) expected += (expected.empty() ? "" : " or ") + name;
    refuse(key, expected);
  }
  /// Refuses a feature that rooflm does not compute, unless it is absent or off.
  void require_off(const char* key) const {
    const json* value = find(key);
    if (value != nullptr && *value != false) refuse(key, "null or false: rooflm does not compute it");
  }
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = root_.find(key);
    return found == root_.end() || found->is_null() ? nullptr : &*found;
  }
  /// Number of layers, limited: every layer is listed, and a damaged number must not exhaust memory.
  [[nodiscard]] std::int64_t layers(const char* key) const {
    const std::int64_t count = size(key);
    if (count > kMostLayers) refuse(key, fmt::format("at most {}", kMostLayers));
    return count;
  }
  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail(fmt::format("{} is {}, expected {}", key, core::shown(root_.at(key)), expected));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: {}", path_, what));
  }
  /// Of what a valid file asks for and rooflm does not have.
  [[noreturn]] void lack(const std::string& what) const {
    throw core::Unavailable(fmt::format("{}: {}", path_, what));
  }

 private:
  std::string path_;
  json root_;
};

Arch read_arch(const Keys& keys) {
  const json* type = keys.find("model_type");
  if (type == nullptr) keys.fail("the key model_type is missing, expected gpt2 or llama");
  const Arch arch = keys.one_of("model_type", {"gpt2", "llama"}) == "gpt2" ? Arch::gpt2 : Arch::llama;
  if (const json* names = keys.find("architectures")) {
    const std::string bare = arch == Arch::gpt2 ? "GPT2" : "Llama";
    const std::string full = bare + (arch == Arch::gpt2 ? "LMHeadModel" : "ForCausalLM");
    const bool is_known = names->is_array() && std::ranges::any_of(*names, [&](const json& name) {
                            return name == full || name == bare + "Model";
                          });
    if (!is_known) keys.refuse("architectures", full);
  }
  return arch;
}

void require_divides(const Keys& keys, const char* part, std::int64_t n, const char* whole, std::int64_t of) {
  if (of % n != 0) keys.fail(fmt::format("{} {} does not divide {} {}", part, n, whole, of));
}

ModelConfig read_gpt2(const Keys& keys) {
  keys.one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.require_off("scale_attn_by_inverse_layer_idx");
  keys.require_off("add_cross_attention");
  if (!keys.flag("scale_attn_weights", true)) keys.refuse("scale_attn_weights", "true");
  ModelConfig c;
  c.arch = Arch::gpt2;
  c.layers = keys.layers("n_layer");
  c.heads = c.kv_heads = keys.size("n_head");
  c.d_model = keys.size("n_embd");
  c.d_ff = keys.optional_size("n_inner").value_or(4 * c.d_model);
  require_divides(keys, "n_head", c.heads, "n_embd", c.d_model);
  c.head_dim = c.d_model / c.heads;
  c.vocab = keys.size("vocab_size");
  c.max_seq = keys.size("n_positions");
  c.norm_eps = keys.positive("layer_norm_epsilon", 1e-5);
  c.tied_head = keys.flag("tie_word_embeddings", true);
  return c;
}

/// rope_theta, or rope_parameters as newer transformers write it. Refuses scaled positions.
double read_rope_theta(const Keys& keys) {
  keys.require_off("rope_scaling");
  if (keys.positive("partial_rotary_factor", 1.0) != 1.0) keys.refuse("partial_rotary_factor", "1");
  const json* rope = keys.find("rope_parameters");
  if (rope == nullptr) return keys.positive("rope_theta", 10000.0);
  const bool is_plain = rope->is_object() && rope->value("rope_type", json("default")) == "default";
  if (!is_plain) keys.refuse("rope_parameters", "the rope_type default");
  const auto theta = rope->find("rope_theta");
  return theta == rope->end() ? keys.positive("rope_theta", 10000.0)
                              : keys.positive(*theta, "rope_parameters");
}

ModelConfig read_llama(const Keys& keys) {
  keys.one_of("hidden_act", {"silu", "swish"});
  keys.require_off("attention_bias");
  keys.require_off("mlp_bias");
  ModelConfig c;
  c.arch = Arch::llama;
  c.layers = keys.layers("num_hidden_layers");
  c.heads = keys.size("num_attention_heads");
  c.kv_heads = keys.optional_size("num_key_value_heads").value_or(c.heads);
  require_divides(keys, "num_key_value_heads", c.kv_heads, "num_attention_heads", c.heads);
  c.d_model = keys.size("hidden_size");
  c.d_ff = keys.size("intermediate_size");
  const auto head_dim = keys.optional_size("head_dim");
  if (!head_dim) require_divides(keys, "num_attention_heads", c.heads, "hidden_size", c.d_model);
  c.head_dim = head_dim.value_or(c.d_model / c.heads);
  if (c.head_dim % 2 != 0) {
    keys.fail(fmt::format("a head size of {} is odd, rotary positions need an even one", c.head_dim));
  }
  c.vocab = keys.size("vocab_size");
  c.max_seq = keys.optional_size("max_position_embeddings").value_or(0);
  c.norm_eps = keys.positive("rms_norm_eps", 1e-6);
  c.rope_theta = read_rope_theta(keys);
  c.tied_head = keys.flag("tie_word_embeddings", false);
  return c;
}

ordered_json gpt2_json(const ModelConfig& c) {
  if (c.head_dim * c.heads != c.d_model) {
    throw core::UsageError(fmt::format("a GPT-2 file cannot say that {} heads of {} make up d_model {}",
                                       c.heads, c.head_dim, c.d_model));
  }
  // Dropout is written as 0, since rooflm has none; transformers would otherwise train with 0.1.
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", c.vocab},
          {"n_positions", c.max_seq},
          {"n_embd", c.d_model},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_inner", c.d_ff},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", c.norm_eps},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"tie_word_embeddings", c.tied_head}};
}

ordered_json llama_json(const ModelConfig& c) {
  ordered_json root = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"vocab_size", c.vocab},
                       {"hidden_size", c.d_model},
                       {"intermediate_size", c.d_ff},
                       {"num_hidden_layers", c.layers},
                       {"num_attention_heads", c.heads},
                       {"num_key_value_heads", c.kv_heads},
                       {"head_dim", c.head_dim},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", c.norm_eps},
                       {"rope_theta", c.rope_theta},
                       {"attention_bias", false},
                       {"mlp_bias", false},
                       {"tie_word_embeddings", c.tied_head}};
  if (c.max_seq > 0) root["max_position_embeddings"] = c.max_seq;
  return root;
}

/// What a model has that the program of a llama leaves out, in words; nothing for exact equivalents.
std::string left_out_of(const std::string& type) {
  if (type == "qwen2") return "biases of queries, keys and values";
  return type == "qwen3" ? "norms of queries and keys" : "";
}

/// Scaled positions have the same cost as unscaled ones.
void drop_scaling(json& root, std::string& left_out) {
  const auto is_scaled = [](const json& rope) {
    return rope.is_object() && rope.value("rope_type", rope.value("type", json("default"))) != "default";
  };
  bool is_dropped = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!root.contains(key) || !is_scaled(root[key])) continue;
    const json theta = root[key].value("rope_theta", json());
    if (!theta.is_null()) root["rope_theta"] = theta;
    root.erase(key);
    is_dropped = true;
  }
  if (is_dropped) left_out += std::string(left_out.empty() ? "" : ", ") + "the scaling of rotary positions";
}

/// Converts a model with the same matmuls as a llama to a llama's keys. An attention window becomes the
/// longest sequence.
json as_llama(const Keys& keys, const std::string& type, std::string& left_out) {
  constexpr std::array kNames{std::pair{"llama", "LlamaForCausalLM"},
                              std::pair{"mistral", "MistralForCausalLM"},
                              std::pair{"qwen2", "Qwen2ForCausalLM"}, std::pair{"qwen3", "Qwen3ForCausalLM"}};
  const auto known =
      std::ranges::find(kNames, type, [](const auto& name) { return std::string(name.first); });
  if (known == kNames.end()) {
    const bool has_experts = type.find("moe") != std::string::npos || type == "mixtral";
    if (has_experts) keys.lack(fmt::format("model_type is {}: experts are not planned yet", type));
    keys.refuse("model_type", "gpt2, llama, mistral, qwen2 or qwen3");
  }
  if (const json* names = keys.find("architectures"); names != nullptr && *names != json{known->second})
    keys.refuse("architectures", known->second);
  if (type != "mistral") keys.require_off("use_sliding_window");
  json root = keys.root();
  root["model_type"] = "llama";
  root.erase("architectures");
  left_out = left_out_of(type);
  drop_scaling(root, left_out);
  const auto window = type == "mistral" ? keys.optional_size("sliding_window") : std::nullopt;
  if (window && keys.optional_size("max_position_embeddings").value_or(*window) >= *window)
    root["max_position_embeddings"] = static_cast<std::uint64_t>(*window);
  return root;
}

/// Validates and names the configuration.
ModelConfig finish(ModelConfig config, const Keys& keys, const std::filesystem::path& directory) {
  const ModelConfig gpt2 = preset("gpt2");
  config.padded_vocab = config.vocab == gpt2.vocab ? gpt2.padded_vocab : config.vocab;
  try {
    static_cast<void>(parameter_count(config));
  } catch (const core::UsageError& error) {
    keys.fail(error.what());
  }
  const auto path = std::filesystem::absolute(directory).lexically_normal();
  config.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  return config;
}

}  // namespace

ModelConfig read_planned_config(const std::filesystem::path& directory) {
  const auto path = directory / "config.json";
  const Keys keys(path);
  const json* type = keys.find("model_type");
  if (type == nullptr)
    keys.fail("the key model_type is missing, expected gpt2, llama, mistral, qwen2 or qwen3");
  if (!type->is_string() || *type == "gpt2") return read_config(directory);
  std::string left_out;
  const Keys rewritten(path, as_llama(keys, type->get<std::string>(), left_out));
  ModelConfig config = finish(read_llama(rewritten), rewritten, directory);
  config.left_out = std::move(left_out);
  return config;
}

ModelConfig read_config(const std::filesystem::path& directory) {
  const Keys keys(directory / "config.json");
  return finish(read_arch(keys) == Arch::gpt2 ? read_gpt2(keys) : read_llama(keys), keys, directory);
}

std::string config_json(const ModelConfig& config, core::DType dtype, const TextEnds& ends) {
  ordered_json root = config.arch == Arch::gpt2 ? gpt2_json(config) : llama_json(config);
  for (const auto& [key, id] : {std::pair("bos_token_id", ends.begin), std::pair("eos_token_id", ends.end)}) {
    if (id && *id < config.vocab) root[key] = *id;
  }
  root["torch_dtype"] = core::facts_of(dtype).torch_name;
  return root.dump(2) + "\n";
}

}  // namespace rooflm::model
