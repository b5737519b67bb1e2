// Writes the config.json of Hugging Face directories, under the keys of the model's family. What is written
// is read back: a family whose file cannot say all of a model is refused.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "model/expert_layers.h"
#include "model/huggingface.h"
#include "model/huggingface_family.h"

namespace rooflm::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// A type or an architecture without what differs in how they are written: "Qwen3MoeForCausalLM",
/// "qwen3_moe".
std::string stem(std::string_view name) {
  std::string letters;
  for (const char c : name.substr(0, std::min(name.find("LMHead"), name.find("For"))))
    if (c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// The keys of one model.
class Keys {
 public:
  Keys(const ModelConfig& config, const Family& family) : c_(config), family_(family) {
    const std::string type = c_.family.empty() ? family.types.front() : c_.family;
    const auto named = std::ranges::find(family.architectures, stem(type), stem);
    root_ = {{"architectures", {named == family.architectures.end() ? family.architectures.front() : *named}},
             {"model_type", type}};
    sizes();
    biases();
    kinds();
    scales();
    if (c_.latent.kv_rank > 0) latent();
    if (c_.arch.positions == Positions::rotary) rotary();
    windows();
    if (c_.experts.count > 0) experts();
    if (is_fixed("experts_beside_dense")) put("enable_moe_block", c_.experts.count > 0);
    for (const auto& [key, value] : family.written.items()) root_[key] = value;
  }

  [[nodiscard]] const ordered_json& root() const { return root_; }

 private:
  [[nodiscard]] bool is_fixed(const char* key) const { return family_.fixed.contains(key); }
  [[nodiscard]] bool has_default(const char* key) const { return family_.defaults.contains(key); }
  /// Whether the row says what the family calls the key.
  [[nodiscard]] bool is_named(const char* key) const { return family_.keys.contains(key); }

  /// Nothing where the row fixes the value.
  void put(const char* key, const ordered_json& value) {
    if (is_fixed(key)) return;
    const std::string name = written_name(family_, key);
    const auto dot = name.find('.');
    if (dot == std::string::npos) {
      root_[name] = value;
    } else {
      root_[name.substr(0, dot)][name.substr(dot + 1)] = value;
    }
  }
  /// Nothing, too, where the row does not know the key.
  void put_known(const char* key, const ordered_json& value) {
    if (is_named(key) || has_default(key)) put(key, value);
  }

  void sizes() {
    put("vocab_size", c_.vocab);
    put("hidden_size", c_.d_model);
    put("intermediate_size", is_fixed("intermediate_half") ? 2 * c_.d_ff : c_.d_ff);
    if (is_named("intermediate_ratio")) put("intermediate_ratio", c_.d_ff / c_.d_model);
    put("num_hidden_layers", c_.layers);
    put("num_attention_heads", c_.heads);
    if (has_default("multi_query")) put("multi_query", c_.kv_heads == 1);
    if (has_default("parallel_attn")) {  // Falcon
      const bool is_new =
          c_.arch.residual == Residual::parallel || (c_.kv_heads > 1 && c_.kv_heads < c_.heads);
      put("parallel_attn", c_.arch.residual != Residual::serial);
      put("new_decoder_architecture", is_new);
      if (is_new) put("num_ln_in_parallel_attn", c_.arch.residual == Residual::parallel ? 2 : 1);
    }
    put("num_key_value_heads", c_.kv_heads);
    put("head_dim", c_.latent.kv_rank > 0 ? c_.latent.rotary_dim : c_.head_dim);
    if (c_.max_seq > 0) put("max_position_embeddings", c_.max_seq);
    put("norm_eps", c_.norm_eps);
    put("tie_word_embeddings", c_.tied_head);
  }

  void biases() {
    if (is_fixed("says_biases")) put("attention_bias", c_.proj_bias);
    if (is_named("qkv_bias")) put("qkv_bias", c_.qkv_bias);
    if (is_named("proj_bias")) put("proj_bias", c_.proj_bias);
    put_known("mlp_bias", c_.mlp_bias);
    put_known("head_bias", c_.head_bias);
    put_known("bias", c_.arch.biases);
  }

  void kinds() {
    const std::string usual = family_.defaults.value("hidden_act", "silu");
    if (!is_fixed("hidden_act")) {
      const Activation ours = c_.arch.activation;
      put("hidden_act", kActivations.parse(usual) == ours ? usual : std::string(kActivations.name(ours)));
    }
    for (const auto& [key, kind] :
         {std::pair{"head_norm", QkNorm::head}, std::pair{"heads_norm", QkNorm::heads},
          std::pair{"whole_norm", QkNorm::whole}}) {
      if (is_named(key)) put(key, c_.qk_norm == kind);
    }
    if (family_.fixed.value("qk_norm", "") == "unweighted") put("use_qk_norm", c_.qk_norm != QkNorm::none);
    if (family_.fixed.value("positions", "") != "alibi")
      put_known("alibi", c_.arch.positions == Positions::alibi);
    if (has_default("use_parallel_residual"))
      put("use_parallel_residual", c_.arch.residual == Residual::parallel);
    if (is_named("parallel_attn")) put("parallel_attn", c_.arch.residual != Residual::serial);
  }

  void scales() {
    const auto cap = [&](const char* key, double value) {
      put_known(key, value > 0 ? ordered_json(value) : ordered_json());
    };
    cap("attn_logit_softcapping", c_.score_cap);
    cap("final_logit_softcapping", c_.logit_cap);
    const auto dim = static_cast<double>(c_.head_dim);
    const double scale = c_.query_scale > 0 ? c_.query_scale : 1 / std::sqrt(dim);
    if (has_default("query_scale_of")) {
      const double of = 1 / (scale * scale);
      put("query_scale_of", std::abs(of - std::round(of)) < 1e-9 * of ? std::round(of) : of);
    } else if (c_.latent.kv_rank == 0 && (c_.query_scale > 0 || has_default("attention_multiplier"))) {
      put("attention_multiplier", scale);
    }
    if (!is_fixed("embedding_multiplier_sqrt")) put_known("embedding_multiplier", c_.embedding_scale);
    if (is_named("scale_depth")) {
      put("scale_depth", c_.residual_scale * std::sqrt(static_cast<double>(c_.layers)));
    } else {
      put_known("residual_multiplier", c_.residual_scale);
    }
    if (has_default("logit_scale")) {
      put("logit_scale", c_.logit_scale);
    } else {
      put_known("logits_scaling", 1 / c_.logit_scale);
    }
  }

  void latent() {
    const LatentAttention& l = c_.latent;
    put("q_lora_rank", l.q_rank > 0 ? ordered_json(l.q_rank) : ordered_json());
    put("kv_lora_rank", l.kv_rank);
    put("qk_nope_head_dim", l.plain_dim);
    put("qk_rope_head_dim", l.rotary_dim);
    put("v_head_dim", l.v_dim);
    if (l.index_heads == 0) return;
    put("index_n_heads", l.index_heads);
    put("index_head_dim", l.index_dim);
    if (l.index_in_layer.empty()) return;
    ordered_json types = ordered_json::array();
    for (std::int64_t i = 0; i < c_.layers; ++i)
      types.push_back(c_.attention_of(i).index_heads > 0 ? "full" : "shared");
    put("indexer_types", types);
  }

  void rotary() {
    const Rotary& r = c_.rotary;
    const std::int64_t all = c_.latent.kv_rank > 0 ? c_.latent.rotary_dim : c_.head_dim;
    const std::int64_t dims = r.dims > 0 ? r.dims : all;
    put("rope_theta", c_.rope_theta);
    if (has_default("rotary_dim")) {
      put("rotary_dim", dims);
    } else {
      put_known("partial_rotary_factor", static_cast<double>(dims) / static_cast<double>(all));
    }
    if (!is_fixed("full_layers_have_no_rope") &&
        (!r.in_layer.empty() || has_default("no_rope_layer_interval"))) {
      for (std::int64_t i = 0; i < c_.layers; ++i) root_["no_rope_layers"].push_back(r.is_in(i) ? 1 : 0);
    }
    if (has_default("attn_temperature_tuning")) put("attn_temperature_tuning", c_.temperature > 0);
    if (c_.temperature > 0) put("temperature", c_.temperature);
    if (c_.temperature > 0) put("temperature_floor", c_.temperature_floor);
    if (has_default("rope_local_base_freq"))
      put("rope_local_base_freq", c_.window_theta > 0 ? c_.window_theta : c_.rope_theta);
    if (c_.rope_scaling.empty()) return;
    root_["rope_scaling"] = {
        {"rope_type", c_.rope_scaling}, {"factor", r.factor},
        {"low_freq_factor", r.low},     {"high_freq_factor", r.high},
        {"beta_fast", r.beta_fast},     {"beta_slow", r.beta_slow},
        {"truncate", r.truncate},       {"original_max_position_embeddings", r.original}};
    if (r.attention > 0) root_["rope_scaling"]["attention_factor"] = r.attention;
    if (c_.latent.kv_rank > 0 && c_.query_scale > 0) {  // DeepSeek's factor of queries and keys
      const double factor = std::sqrt(c_.query_scale * std::sqrt(static_cast<double>(c_.head_dim)));
      root_["rope_scaling"]["mscale_all_dim"] = (factor - 1) / (0.1 * std::log(r.factor));
    }
  }

  void windows() {
    if (is_fixed("layer_type"))
      root_["layer_types"] =
          std::vector<std::string>(static_cast<std::size_t>(c_.layers), family_.fixed.at("layer_type"));
    const std::string rule =
        family_.fixed.value("window_rule", family_.defaults.value("window_rule", "none"));
    if (rule == "none") return;
    if (rule == "late") put("use_sliding_window", c_.window > 0);
    put("sliding_window", c_.window > 0 ? ordered_json(c_.window) : ordered_json());
    if (rule == "every") {  // GPT-Neo
      const auto kinds = json::array({json::array({"global", "local"}), (c_.layers + 1) / 2});
      root_["attention_types"] = json::array({kinds});
    }
    if (c_.window == 0 || rule == "every" || rule == "rotary") return;
    if (c_.windowed.empty() && !has_default("sliding_window_pattern") && rule != "late") return;
    for (std::int64_t i = 0; i < c_.layers; ++i)
      root_["layer_types"].push_back(c_.window_of(i) > 0 ? "sliding_attention" : "full_attention");
    if (c_.full_head_dim > 0) put("global_head_dim", c_.full_head_dim);
    if (c_.full_values_are_keys) put("attention_k_eq_v", true);
    if (c_.full_kv_heads > 0) put("num_global_key_value_heads", c_.full_kv_heads);
  }

  void experts() {
    const Experts& e = c_.experts;
    put("num_experts", e.count);
    put("num_experts_per_tok", e.active);
    put("moe_intermediate_size", e.d_ff);
    if (is_named("shared_expert_intermediate_size")) {
      put("shared_expert_intermediate_size", e.shared_d_ff);
    } else if (!is_fixed("shared_expert_of") && !is_fixed("experts_beside_dense") && e.d_ff > 0) {
      put_known("n_shared_experts", e.shared_d_ff / e.d_ff);
    }
    put_known("scoring_func", e.sigmoid_scores ? "sigmoid" : "softmax");
    if (is_named("score_bias")) put("score_bias", e.score_bias);
    put_known("norm_topk_prob", e.normalised);
    put_known("n_group", e.groups);
    put_known("topk_group", e.active_groups);
    put_known("topk_method", e.groups > 1 ? "group_limited_greedy" : "greedy");
    put_known("jitter", e.jitter);
    put_known("routed_scaling_factor", e.scale);
    expert_layers_of();
    if (e.balance_loss > 0 || is_fixed("moe_intermediate_size")) {
      root_["output_router_logits"] = e.balance_loss > 0;  // whether transformers adds the loss
      if (e.balance_loss > 0) root_["router_aux_loss_coef"] = e.balance_loss * expert_layers(c_);
    }
  }

  /// Lists of dense layers, each N-th layer, or the first dense layers: whichever the family has.
  void expert_layers_of() {
    std::vector<std::int64_t> dense;
    for (std::int64_t i = 0; i < c_.layers; ++i)
      if (!c_.experts.are_in(i)) dense.push_back(i);
    if (is_named("mlp_only_layers")) {
      put("mlp_only_layers", dense);
    } else if (is_named("decoder_sparse_step") && !has_default("first_k_dense_replace")) {
      put("decoder_sparse_step", dense.empty() || dense.front() > 0 ? 1 : first_of_experts() + 1);
    } else {
      put_known("first_k_dense_replace", first_of_experts());
    }
  }

  [[nodiscard]] std::int64_t first_of_experts() const {
    std::int64_t first = 0;
    while (first < c_.layers && !c_.experts.are_in(first)) ++first;
    return first;
  }

  const ModelConfig& c_;
  const Family& family_;
  ordered_json root_;
};

/// By layer, without what no layer differs in.
std::vector<bool> listed(const std::vector<bool>& by_layer, std::int64_t layers) {
  std::vector<bool> all;
  for (std::int64_t i = 0; i < layers && !by_layer.empty(); ++i)
    all.push_back(by_layer[static_cast<std::size_t>(i) % by_layer.size()]);
  const bool is_uniform = std::ranges::find(all, false) == all.end();
  return is_uniform ? std::vector<bool>{} : all;
}

/// What a file has to say of a model, in one form.
ModelConfig described(ModelConfig c) {
  c.name = c.family = c.other_parts = c.stored_as = "";
  c.padded_vocab = c.vocab;
  if (c.window == 0) c.windowed.clear();
  c.windowed = listed(c.windowed, c.layers);
  c.latent.index_in_layer = listed(c.latent.index_in_layer, c.layers);
  c.rotary.in_layer = listed(c.rotary.in_layer, c.layers);
  c.experts.in_layer = listed(c.experts.in_layer, c.layers);
  if (c.experts.count == 0) c.experts = {};
  if (c.rope_scaling.empty())
    c.rotary = {.dims = c.rotary.dims, .interleaved = c.rotary.interleaved, .in_layer = c.rotary.in_layer};
  for (double* value :
       {&c.alibi_slopes, &c.query_scale, &c.residual_scale, &c.logit_scale, &c.experts.balance_loss})
    *value = static_cast<float>(*value);  // they are inverted, squared, and so on
  return c;
}

bool says_all(const ModelConfig& config, const Family& family) {
  try {
    const ConfigKeys keys(config.name, json(Keys(config, family).root()), family);
    return described(read_family(keys, family)) == described(config);
  } catch (const core::InputError&) {
    return false;
  } catch (const core::Unavailable&) {
    return false;
  }
}

}  // namespace

const Family& family_of(const ModelConfig& config) {
  if (const Family* family = find_family(config.family)) return *family;
  for (const Family& family : families())
    if (family.of_presets && says_all(config, family)) return family;
  throw core::Unavailable(fmt::format("no family has the config.json of {}", config.name));
}

std::string config_json(const ModelConfig& config, core::DType dtype, const TextEnds& ends) {
  const Family& family = family_of(config);
  if (!says_all(config, family)) {
    throw core::Unavailable(fmt::format("{}: a config.json of {} cannot say all of this model", config.name,
                                        family.types.front()));
  }
  ordered_json root = Keys(config, family).root();
  for (const auto& [key, id] : {std::pair("bos_token_id", ends.begin), std::pair("eos_token_id", ends.end)}) {
    if (id && *id < config.vocab) root[key] = *id;
  }
  root["torch_dtype"] = core::facts_of(dtype).torch_name;
  return root.dump(2) + "\n";
}

}  // namespace rooflm::model
