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
  /// A number of at least 0.
  [[nodiscard]] std::int64_t count(const char* key, std::int64_t otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    return *value == 0 ? 0 : *optional_size(key);
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

/// Where layers of a family have attention windows.
enum class Windows : std::uint8_t { none, all, late };

/// What models of the llama kind are called, and what they have besides: a row each.
struct Family {
  const char* type;          ///< model_type
  const char* architecture;  ///< in `architectures`
  Windows windows = Windows::none;
  bool says_biases = false;  ///< attention_bias and mlp_bias
  bool qkv_bias = false;     ///< always
  bool qk_norm = false;
  const char* experts = nullptr;  ///< the key with their number
  const char* experts_d_ff = "intermediate_size";
  bool normalises = true;     ///< weights of chosen experts, where norm_topk_prob does not say it
  const char* left_out = "";  ///< of programs
};

constexpr const char* kMultipliers = "multipliers of embeddings, attention, residuals and logits";

constexpr std::array kFamilies{
    Family{.type = "llama", .architecture = "LlamaForCausalLM", .says_biases = true},
    Family{.type = "mistral", .architecture = "MistralForCausalLM", .windows = Windows::all},
    Family{.type = "qwen2", .architecture = "Qwen2ForCausalLM", .windows = Windows::late, .qkv_bias = true},
    Family{.type = "qwen3",
           .architecture = "Qwen3ForCausalLM",
           .windows = Windows::late,
           .says_biases = true,
           .qk_norm = true},
    Family{.type = "mixtral",
           .architecture = "MixtralForCausalLM",
           .windows = Windows::all,
           .experts = "num_local_experts"},
    Family{.type = "qwen3_moe",
           .architecture = "Qwen3MoeForCausalLM",
           .windows = Windows::late,
           .says_biases = true,
           .qk_norm = true,
           .experts = "num_experts",
           .experts_d_ff = "moe_intermediate_size",
           .normalises = false},
    Family{.type = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .windows = Windows::late,
           .says_biases = true,
           .left_out = "layers without rotary positions"},
    Family{.type = "granite",
           .architecture = "GraniteForCausalLM",
           .says_biases = true,
           .left_out = kMultipliers},
    Family{.type = "granitemoe",
           .architecture = "GraniteMoeForCausalLM",
           .says_biases = true,
           .experts = "num_local_experts",
           .left_out = kMultipliers},
};

/// Parts of models that no program describes yet, by a key that says that a model has them.
constexpr std::array kUnknownParts{
    std::pair{"kv_lora_rank", "multi-head latent attention"},
    std::pair{"ssm_state_size", "state-space layers"},
    std::pair{"linear_num_key_heads", "layers of linear attention"},
    std::pair{"text_config", "a text model within one of several media"},
};

/// router_aux_loss_coef of files that do not say it.
constexpr double kTransformersBalance = 0.001;

constexpr const char* kGpt2Head = "GPT2LMHeadModel";

/// The model_type, or that of the architecture where old files leave it out.
std::string type_of(const Keys& keys) {
  std::string known = "gpt2";
  for (const Family& family : kFamilies) known += std::string(", ") + family.type;
  const json* type = keys.find("model_type");
  const json* names = keys.find("architectures");
  if (type == nullptr && names != nullptr && *names == json{kGpt2Head}) return "gpt2";
  if (type == nullptr) keys.fail(fmt::format("the key model_type is missing, expected one of {}", known));
  if (!type->is_string()) keys.refuse("model_type", "one of " + known);
  auto text = type->get<std::string>();
  const auto* const family =
      std::ranges::find(kFamilies, text, [](const Family& f) { return std::string(f.type); });
  if (text != "gpt2" && family == kFamilies.end()) {
    // What is no model at all is bad input.
    if (names == nullptr && keys.find("vocab_size") == nullptr) keys.refuse("model_type", "one of " + known);
    std::string has = text.starts_with("deepseek_v") ? "multi-head latent attention" : "";
    for (const auto& [key, part] : kUnknownParts) {
      if (keys.find(key) != nullptr) has = part;
    }
    keys.lack(fmt::format("model_type is {}{}: not described yet; known are {}", core::shown(*type),
                          has.empty() ? "" : ", which has " + has, known));
  }
  if (names == nullptr) return text;
  const std::string full = text == "gpt2" ? kGpt2Head : family->architecture;
  const std::string bare = full.substr(0, full.find(text == "gpt2" ? "LMHead" : "ForCausalLM")) + "Model";
  const bool is_known = names->is_array() && std::ranges::any_of(*names, [&](const json& name) {
                          return name == full || name == bare;
                        });
  if (!is_known) keys.refuse("architectures", full);
  return text;
}

/// rope_theta and the scaling of positions: in rope_scaling, or in rope_parameters as newer transformers
/// write them. The type "default" scales nothing.
void read_positions(const Keys& keys, ModelConfig& c) {
  if (keys.positive("partial_rotary_factor", 1.0) != 1.0) keys.refuse("partial_rotary_factor", "1");
  c.rope_theta = keys.positive("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* rope = keys.find(key);
    if (rope == nullptr) continue;
    const json type =
        rope->is_object() ? rope->value("rope_type", rope->value("type", json("default"))) : json();
    if (!type.is_string()) keys.refuse(key, "an object with a rope_type");
    if (type != "default") c.rope_scaling = type.get<std::string>();
    if (const auto theta = rope->find("rope_theta"); theta != rope->end() && !theta->is_null())
      c.rope_theta = keys.positive(*theta, key);
  }
}

/// Which layers have the window: layer_types says so, or every layer but each N-th (sliding_window_pattern),
/// or the family's rule.
void read_windows(const Keys& keys, Windows windows, ModelConfig& c) {
  const auto window = keys.optional_size("sliding_window");
  const bool is_used = keys.flag("use_sliding_window", windows == Windows::all);
  if (windows == Windows::none || !window || !is_used) return;
  c.window = *window;
  const auto layers = static_cast<std::size_t>(c.layers);
  if (const json* types = keys.find("layer_types")) {
    const bool fits =
        types->is_array() && types->size() == layers && std::ranges::all_of(*types, [](const json& type) {
          return type == "sliding_attention" || type == "full_attention";
        });
    if (!fits) keys.refuse("layer_types", "sliding_attention or full_attention for each layer");
    for (const json& type : *types) c.windowed.push_back(type == "sliding_attention");
  } else if (const auto pattern = keys.optional_size("sliding_window_pattern")) {
    for (std::size_t i = 1; i <= layers; ++i)
      c.windowed.push_back(i % static_cast<std::size_t>(*pattern) != 0);
  } else if (windows == Windows::late) {
    const std::int64_t first = keys.count("max_window_layers", 28);
    for (std::size_t i = 0; i < layers; ++i) c.windowed.push_back(static_cast<std::int64_t>(i) >= first);
  }
  if (std::ranges::find(c.windowed, true) == c.windowed.end() && !c.windowed.empty()) c.window = 0;
}

/// Layers with experts. The balance loss of transformers is one of all of them, with means over tokens and
/// layers; here it is the sum of one for each.
double expert_layers(const ModelConfig& c) {
  double count = 0;
  for (std::int64_t i = 0; i < c.layers; ++i) count += c.experts.are_in(i) ? 1 : 0;
  return std::max(count, 1.0);
}

void read_experts(const Keys& keys, const Family& family, ModelConfig& c) {
  if (family.experts == nullptr) return;
  Experts& e = c.experts;
  e.count = keys.size(family.experts);
  e.active = keys.size("num_experts_per_tok");
  if (e.active > e.count) {
    keys.fail(fmt::format("num_experts_per_tok {} is more than {} {}", e.active, family.experts, e.count));
  }
  e.d_ff = keys.size(family.experts_d_ff);
  e.normalised = keys.flag("norm_topk_prob", family.normalises);
  if (keys.optional_size("n_shared_experts") || keys.optional_size("shared_expert_intermediate_size"))
    keys.lack("shared experts are not described yet");
  const auto every = static_cast<std::size_t>(keys.optional_size("decoder_sparse_step").value_or(1));
  const json* dense = keys.find("mlp_only_layers");
  if (every == 1 && (dense == nullptr || *dense == json::array())) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.layers); ++i) {
    const bool is_dense = dense != nullptr && std::ranges::find(*dense, json(i)) != dense->end();
    e.in_layer.push_back(!is_dense && (i + 1) % every == 0);
  }
}

ModelConfig read_llama(const Keys& keys, const Family& family) {
  keys.one_of("hidden_act", {"silu", "swish"});
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
  c.tied_head = keys.flag("tie_word_embeddings", false);
  c.proj_bias = family.says_biases && keys.flag("attention_bias", false);
  c.qkv_bias = family.qkv_bias || c.proj_bias;
  c.mlp_bias = family.says_biases && keys.flag("mlp_bias", false);
  c.qk_norm = family.qk_norm;
  c.left_out = family.left_out;
  read_positions(keys, c);
  read_windows(keys, family.windows, c);
  read_experts(keys, family, c);
  if (c.experts.count > 0 && keys.flag("output_router_logits", false))
    c.experts.balance_loss = keys.positive("router_aux_loss_coef", kTransformersBalance) / expert_layers(c);
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

/// Whether the family's config.json can say which experts the model has.
bool describes(const Family& f, const ModelConfig& c) {
  const Experts& e = c.experts;
  if (f.experts == nullptr || e.count == 0) return f.experts == nullptr && e.count == 0;
  const bool has_own_width = f.experts_d_ff != std::string_view("intermediate_size");
  return (has_own_width || (e.d_ff == c.d_ff && e.in_layer.empty())) && (e.normalised || !f.normalises) &&
         !e.sigmoid && e.scale == 1 && e.shared_d_ff == 0;
}

void write_experts(const Family& family, const ModelConfig& c, ordered_json& root) {
  if (c.experts.count == 0) return;
  root[family.experts] = c.experts.count;
  root["num_experts_per_tok"] = c.experts.active;
  root[family.experts_d_ff] = c.experts.d_ff;
  root["output_router_logits"] = c.experts.balance_loss > 0;  // whether transformers adds the loss
  if (c.experts.balance_loss > 0) root["router_aux_loss_coef"] = c.experts.balance_loss * expert_layers(c);
  if (family.normalises) return;
  root["norm_topk_prob"] = c.experts.normalised;
  for (std::int64_t i = 0; i < c.layers; ++i)
    if (!c.experts.are_in(i)) root["mlp_only_layers"].push_back(i);
}

ordered_json llama_json(const ModelConfig& c) {
  const auto* const family = std::ranges::find_if(kFamilies, [&](const Family& f) {
    const bool has_biases = f.says_biases || !(c.proj_bias || c.mlp_bias);
    return describes(f, c) && f.qk_norm == c.qk_norm && c.left_out == f.left_out && has_biases &&
           f.qkv_bias == (c.qkv_bias && !c.proj_bias) && (f.windows != Windows::none || c.window == 0);
  });
  const std::string lacking = uncomputed(c, 1);
  if (family == kFamilies.end() || !lacking.empty()) {
    throw core::Unavailable(fmt::format("no family has the config.json of {}{}{}", c.name,
                                        lacking.empty() ? "" : " with ", lacking));
  }
  ordered_json root = {{"architectures", {family->architecture}},
                       {"model_type", family->type},
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
                       {"attention_bias", c.proj_bias},
                       {"mlp_bias", c.mlp_bias},
                       {"tie_word_embeddings", c.tied_head}};
  if (c.window > 0) {
    root["sliding_window"] = c.window;
    root["use_sliding_window"] = true;
    for (std::int64_t i = 0; i < c.layers && !c.windowed.empty(); ++i)
      root["layer_types"].push_back(c.window_of(i) > 0 ? "sliding_attention" : "full_attention");
  }
  write_experts(*family, c, root);
  if (c.max_seq > 0) root["max_position_embeddings"] = c.max_seq;
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

ModelConfig read_config(const std::filesystem::path& directory) {
  const Keys keys(directory / "config.json");
  const std::string type = type_of(keys);
  if (type == "gpt2") return finish(read_gpt2(keys), keys, directory);
  const auto* const family =
      std::ranges::find(kFamilies, type, [](const Family& f) { return std::string(f.type); });
  return finish(read_llama(keys, *family), keys, directory);
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
