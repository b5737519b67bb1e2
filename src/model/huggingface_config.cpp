// Reads the config.json of Hugging Face directories: the rows of data/families.json say what keys mean.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/named.h"
#include "model/config_keys.h"
#include "model/expert_layers.h"
#include "model/huggingface.h"
#include "model/huggingface_family.h"
#include "model/quantized_files.h"

namespace rooflm::model {
namespace {

using nlohmann::json;

/// A kind by its name in config.json, the first one where it says nothing.
template <class Kinds>
auto kind_of(const ConfigKeys& keys, const char* key, const Kinds& kinds) {
  return kinds.parse(keys.one_of(key, kinds.names()));
}

constexpr auto kNorms = core::named<Norm>("norm", {{Norm::rms, "rms"}, {Norm::layer, "layer"}});
constexpr auto kNormPlaces = core::named<NormPlace>(
    "place of norms",
    {{NormPlace::before, "before"}, {NormPlace::after, "after"}, {NormPlace::both, "both"}});
constexpr auto kPositions = core::named<Positions>("positions", {{Positions::rotary, "rotary"},
                                                                 {Positions::learned, "learned"},
                                                                 {Positions::alibi, "alibi"},
                                                                 {Positions::none, "none"}});
constexpr auto kResiduals =
    core::named<Residual>("residual", {{Residual::serial, "serial"},
                                       {Residual::parallel, "parallel"},
                                       {Residual::parallel_one_norm, "parallel_one_norm"}});
constexpr auto kQkNorms =
    core::named<QkNorm>("norm of queries and keys", {{QkNorm::none, "none"},
                                                     {QkNorm::head, "head"},
                                                     {QkNorm::heads, "heads"},
                                                     {QkNorm::whole, "whole"},
                                                     {QkNorm::unweighted, "unweighted"}});
void require_divides(const ConfigKeys& keys, const char* part, std::int64_t n, const char* whole,
                     std::int64_t of) {
  if (of % n != 0)
    keys.fail(fmt::format("{} {} does not divide {} {}", keys.name(part), n, keys.name(whole), of));
}

/// true or false for each layer from a list of names or of numbers.
template <class Test>
std::vector<bool> by_layer(const ConfigKeys& keys, const char* key, const json& list, std::int64_t layers,
                           const char* expected, Test&& test) {
  if (!list.is_array() || list.size() != static_cast<std::size_t>(layers))
    keys.refuse(key, fmt::format("{} for each layer", expected));
  std::vector<bool> values;
  for (const json& each : list) {
    const std::optional<bool> value = test(each);
    if (!value) keys.refuse(key, fmt::format("{} for each layer", expected));
    values.push_back(*value);
  }
  return values;
}

void read_kinds(const ConfigKeys& keys, ModelConfig& c) {
  Arch& a = c.arch;
  a.norm = kind_of(keys, "norm", kNorms);
  a.norm_bias = keys.flag("norm_bias", false);
  a.norm_weight = keys.flag("norm_weight", true);
  a.norm_offset = keys.flag("norm_offset", false);
  a.norm_place = kind_of(keys, "norm_place", kNormPlaces);
  a.embedding_norm = keys.flag("embedding_norm", false);
  a.positions = kind_of(keys, "positions", kPositions);
  if (keys.flag("alibi", false)) a.positions = Positions::alibi;
  a.position_offset = keys.count("position_offset", 0);
  a.residual = kind_of(keys, "residual", kResiduals);
  if (keys.flag("use_parallel_residual", false)) a.residual = Residual::parallel;
  if (keys.flag("parallel_attn", false)) {
    const bool has_two =
        keys.flag("new_decoder_architecture", false) && keys.count("num_ln_in_parallel_attn", 2) == 2;
    a.residual = has_two ? Residual::parallel : Residual::parallel_one_norm;
  }
  a.gated = keys.flag("gated", true);
  a.activation = kind_of(keys, "hidden_act", kActivations);
  a.biases = keys.flag("bias", false);
  c.norm_eps = keys.positive("norm_eps", 1e-6);
}

void read_sizes(const ConfigKeys& keys, ModelConfig& c) {
  c.layers = keys.layers("num_hidden_layers");
  c.heads = keys.size("num_attention_heads");
  const bool has_new_falcon = keys.flag("new_decoder_architecture", false);
  const bool is_multi_query = keys.flag("multi_query", false) && !has_new_falcon;
  c.kv_heads = is_multi_query ? 1 : keys.optional_size("num_key_value_heads").value_or(c.heads);
  require_divides(keys, "num_key_value_heads", c.kv_heads, "num_attention_heads", c.heads);
  c.d_model = keys.size("hidden_size");
  const auto ratio = keys.optional_size("intermediate_ratio");
  c.d_ff = ratio ? keys.optional_size("intermediate_size").value_or(*ratio * c.d_model)
                 : keys.size("intermediate_size");
  if (keys.flag("intermediate_half", false)) c.d_ff /= 2;
  const auto head_dim = keys.optional_size("head_dim");
  const bool says_head = head_dim || keys.flag("latent", false);  // read_latent has the sizes of those
  if (!says_head) require_divides(keys, "num_attention_heads", c.heads, "hidden_size", c.d_model);
  c.head_dim = head_dim.value_or(c.d_model / c.heads);
  c.vocab = keys.size("vocab_size");
  c.max_seq = c.has_learned_positions() ? keys.size("max_position_embeddings")
                                        : keys.optional_size("max_position_embeddings").value_or(0);
  c.tied_head = keys.flag("tie_word_embeddings", false);
  if (keys.optional_size("word_embed_proj_dim").value_or(c.d_model) != c.d_model ||
      !keys.flag("do_layer_norm_before", true))
    keys.lack("embeddings of another width, and norms of sums, are not described yet");
}

void read_attention(const ConfigKeys& keys, ModelConfig& c) {
  const bool says_biases = keys.flag("says_biases", false);
  c.proj_bias = (says_biases && keys.flag("attention_bias", false)) || keys.flag("proj_bias", false);
  const bool has_own = keys.find("qkv_bias") != nullptr;
  c.qkv_bias = has_own ? keys.flag("qkv_bias", false) : c.proj_bias && says_biases;
  c.mlp_bias = keys.flag("mlp_bias", false);
  c.head_bias = keys.flag("head_bias", false);
  c.qk_norm = kind_of(keys, "qk_norm", kQkNorms);
  if (keys.flag("head_norm", false)) c.qk_norm = QkNorm::head;
  if (keys.flag("heads_norm", false)) c.qk_norm = QkNorm::heads;
  if (keys.flag("whole_norm", false)) c.qk_norm = QkNorm::whole;
  if (c.qk_norm == QkNorm::unweighted && !keys.flag("use_qk_norm", true)) c.qk_norm = QkNorm::none;
  c.qk_norm_rotated = keys.flag("qk_norm_rotated", false);
  c.qk_norm_bias = c.qk_norm == QkNorm::head && keys.flag("qk_norm_bias", false);
  if (keys.find("clip_qkv") != nullptr) c.left_out = "queries, keys and values that are clipped";
  c.sinks = keys.flag("sinks", false);
  if (c.arch.positions == Positions::alibi) {
    if (keys.flag("alibi_is_scaled", false)) c.alibi_slopes = 1 / std::sqrt(static_cast<double>(c.head_dim));
    if (keys.positive("alibi_bias_max", 8) != 8) c.left_out = "linear biases (ALiBi) with other slopes";
  }
  c.score_cap = keys.positive("attn_logit_softcapping", 0);
  c.logit_cap = keys.positive("final_logit_softcapping", 0);
  c.query_scale = keys.positive("attention_multiplier", 0);
  if (keys.find("query_scale_of") != nullptr)
    c.query_scale = 1 / std::sqrt(keys.positive("query_scale_of", 1));
  const double usual = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (std::abs(c.query_scale - usual) < 1e-12 * usual) c.query_scale = 0;
  c.embedding_scale = keys.positive("embedding_multiplier", 1);
  if (keys.flag("embedding_multiplier_sqrt", false))
    c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  c.residual_scale = keys.positive("residual_multiplier", 1);
  if (keys.find("scale_depth") != nullptr)
    c.residual_scale = keys.positive("scale_depth", 1) / std::sqrt(static_cast<double>(c.layers));
  c.logit_scale = keys.positive("logit_scale", 1) / keys.positive("logits_scaling", 1);
}

/// kv_lora_rank and what belongs to it.
void read_latent(const ConfigKeys& keys, ModelConfig& c) {
  if (!keys.flag("latent", false)) return;
  LatentAttention& l = c.latent;
  l.q_rank = keys.optional_size("q_lora_rank").value_or(0);
  l.kv_rank = keys.size("kv_lora_rank");
  l.plain_dim = keys.size("qk_nope_head_dim");
  l.rotary_dim = keys.size("qk_rope_head_dim");
  l.v_dim = keys.size("v_head_dim");
  l.index_heads = keys.optional_size("index_n_heads").value_or(0);
  if (l.index_heads > 0) {
    l.index_dim = keys.size("index_head_dim");
    if (l.q_rank == 0) keys.fail("index_n_heads without q_lora_rank: nothing makes the indexer's queries");
    c.left_out = "keys that an indexer chooses (attention is priced in full)";
    if (const json* types = keys.find("indexer_types"))
      l.index_in_layer =
          by_layer(keys, "indexer_types", *types, c.layers, "full or shared", [](const json& type) {
            return type == "full" || type == "shared" ? std::optional<bool>(type == "full") : std::nullopt;
          });
  }
  c.kv_heads = c.heads;
  c.head_dim = l.plain_dim + l.rotary_dim;
}

void read_positions(const ConfigKeys& keys, ModelConfig& c) {
  if (c.arch.positions != Positions::rotary) return;
  c.rope_theta = keys.positive("rope_theta", 10000.0);
  const std::int64_t dims = c.latent.kv_rank > 0 ? c.latent.rotary_dim : c.head_dim;
  Rotary& r = c.rotary;
  r.dims =
      keys.optional_size("rotary_dim")
          .value_or(std::llround(keys.positive("partial_rotary_factor", 1.0) * static_cast<double>(dims)));
  r.interleaved = keys.flag("rope_interleaved", false);
  bool is_by_kind = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* rope = keys.find(key);
    if (rope == nullptr) continue;
    is_by_kind = read_rope(keys, key, *rope, c);
  }
  if (!is_by_kind && keys.find("rope_local_base_freq") != nullptr)
    c.window_theta = keys.positive("rope_local_base_freq", c.rope_theta);
  if (c.window_theta == c.rope_theta && c.rope_scaling.empty()) c.window_theta = 0;
  if (r.dims > dims || r.dims <= 0)
    keys.fail(fmt::format("{} rotated elements of a head of {}", r.dims, dims));
  if (r.dims % 2 != 0)
    keys.fail(fmt::format("a head size of {} is odd, rotary positions need an even one", r.dims));
  if (r.dims == dims) r.dims = 0;
  if (const json* tuned = keys.find("attn_temperature_tuning");
      tuned != nullptr && *tuned != false && *tuned != 0) {
    c.temperature = keys.positive("temperature", 0);
    c.temperature_floor = keys.positive("temperature_floor", 1);
  }
  if (const json* layers = keys.find("no_rope_layers"); layers != nullptr && *layers != json::array()) {
    r.in_layer = by_layer(keys, "no_rope_layers", *layers, c.layers, "0 or 1", [](const json& each) {
      return each == 0 || each == 1 ? std::optional<bool>(each == 1) : std::nullopt;
    });
  } else if (const auto every = keys.optional_size("no_rope_layer_interval")) {
    for (std::int64_t i = 1; i <= c.layers; ++i) r.in_layer.push_back(i % *every != 0);
  }
}

/// Every layer but each N-th: sliding_window_pattern as a number, or as text ("LLLG").
std::optional<std::int64_t> window_period(const ConfigKeys& keys) {
  const json* pattern = keys.find("sliding_window_pattern");
  if (pattern == nullptr || !pattern->is_string()) return keys.optional_size("sliding_window_pattern");
  const auto text = pattern->get<std::string>();
  const auto first = text.find('G');
  if (first == std::string::npos || first + 1 != text.size()) keys.refuse("sliding_window_pattern", "L..LG");
  return static_cast<std::int64_t>(text.size());
}

/// Which layers have the window: layer_types says so, or every layer but each N-th, or the family's rule.
void read_windows(const ConfigKeys& keys, ModelConfig& c) {
  const std::string rule = keys.one_of("window_rule", {"none", "all", "late", "every", "rotary"});
  if (rule == "none" || !keys.flag("use_sliding_window", rule != "late")) return;  // may be 0 there
  const auto window = keys.optional_size("sliding_window");
  if (!window) return;
  c.window = *window;
  if (const json* types = keys.find("layer_types"); types != nullptr && rule != "rotary") {
    c.windowed = by_layer(keys, "layer_types", *types, c.layers, "sliding_attention or full_attention",
                          [](const json& type) -> std::optional<bool> {
                            if (type == "sliding_attention" || type == "chunked_attention") return true;
                            return type == "full_attention" ? std::optional(false) : std::nullopt;
                          });
  } else if (const auto period = window_period(keys)) {
    for (std::int64_t i = 1; i <= c.layers; ++i) c.windowed.push_back(i % *period != 0);
    if (!keys.flag("windowed_first", true)) c.windowed.flip();
  } else if (rule == "late") {
    const std::int64_t first = keys.count("max_window_layers", 28);
    for (std::int64_t i = 0; i < c.layers; ++i) c.windowed.push_back(i >= first);
  } else if (rule == "rotary") {
    c.windowed = c.rotary.in_layer;
  }
  if (std::ranges::find(c.windowed, true) == c.windowed.end() && !c.windowed.empty()) c.window = 0;
  if (c.window == 0) return;
  if (keys.flag("full_layers_have_no_rope", false)) c.rotary.in_layer = c.windowed;
  const json* types = keys.find("layer_types");
  const bool is_listed = types != nullptr && std::ranges::find(*types, "chunked_attention") != types->end();
  c.chunked = is_listed || rule == "rotary";  // Llama 4's
  c.full_head_dim = keys.optional_size("global_head_dim").value_or(0);
  c.full_values_are_keys = keys.flag("attention_k_eq_v", false);
  if (c.full_values_are_keys) {
    c.full_kv_heads = keys.optional_size("num_global_key_value_heads").value_or(c.kv_heads);
    require_divides(keys, "num_global_key_value_heads", c.full_kv_heads, "num_attention_heads", c.heads);
  }
}

/// Which layers have experts and which are dense.
void read_expert_layers(const ConfigKeys& keys, ModelConfig& c) {
  const std::int64_t first = keys.count("first_k_dense_replace", 0);
  const std::int64_t every = keys.optional_size("decoder_sparse_step").value_or(1);
  const std::int64_t last = keys.count("moe_layer_end_index", c.layers - 1);
  const json* dense = keys.find("mlp_only_layers");
  if (dense != nullptr && !dense->is_array()) keys.refuse("mlp_only_layers", "a list of layers");
  std::vector<bool> in_layer;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const bool is_dense = dense != nullptr && std::ranges::find(*dense, json(i)) != dense->end();
    in_layer.push_back(!is_dense && i >= first && i <= last && (i + 1) % every == 0);
  }
  if (const json* types = keys.find("mlp_layer_types")) {
    in_layer = by_layer(keys, "mlp_layer_types", *types, c.layers, "dense or sparse", [](const json& type) {
      return type == "sparse" || type == "dense" ? std::optional<bool>(type == "sparse") : std::nullopt;
    });
  }
  if (std::ranges::find(in_layer, false) != in_layer.end()) c.experts.in_layer = std::move(in_layer);
}

/// router_aux_loss_coef of files that do not say it.
constexpr double kTransformersBalance = 0.001;

/// From which groups the experts of a token come.
void read_expert_groups(const ConfigKeys& keys, ModelConfig& c) {
  Experts& e = c.experts;
  if (keys.one_of("topk_method", {"noaux_tc", "group_limited_greedy", "greedy"}) == "greedy") return;
  e.groups = keys.optional_size("n_group").value_or(1);
  e.active_groups = keys.optional_size("topk_group").value_or(1);
  if (e.groups == 1) e.active_groups = 1;
  require_divides(keys, "n_group", e.groups, "num_experts", e.count);
  if (e.groups > 1) e.group_best = keys.optional_size("group_best").value_or(1);
  if (e.active_groups > e.groups || core::Count(e.active_groups) * (e.count / e.groups) < e.active) {
    keys.fail(fmt::format("{} {} experts of {} {} of {} {} groups of {}", keys.name("num_experts_per_tok"),
                          e.active, keys.name("topk_group"), e.active_groups, keys.name("n_group"), e.groups,
                          e.count));
  }
}

void read_experts(const ConfigKeys& keys, ModelConfig& c) {
  const bool is_beside = keys.flag("experts_beside_dense", false);
  if (is_beside ? !keys.flag("enable_moe_block", false) : !keys.flag("experts", false)) return;
  Experts& e = c.experts;
  e.count = keys.size("num_experts");
  e.active = keys.size("num_experts_per_tok");
  if (e.active > e.count) {
    keys.fail(fmt::format("{} {} is more than {} {}", keys.name("num_experts_per_tok"), e.active,
                          keys.name("num_experts"), e.count));
  }
  e.d_ff = keys.optional_size("moe_intermediate_size").value_or(c.d_ff);
  e.shared_d_ff = keys.count("shared_expert_intermediate_size", 0);
  if (e.shared_d_ff == 0 && keys.flag("shared_expert", true))
    e.shared_d_ff = e.d_ff * keys.count("n_shared_experts", 0);
  if (keys.find("shared_expert_of") != nullptr) e.shared_d_ff = e.d_ff;
  if (is_beside) {
    e.shared_d_ff = c.d_ff;
    e.has_own_norms = true;
  }
  e.shared_gate = keys.flag("shared_gate", false);
  e.router_bias = keys.flag("router_bias", false);
  e.biases = keys.flag("experts_bias", false);
  e.sigmoid_scores = keys.one_of("scoring_func", {"softmax", "sigmoid"}) == "sigmoid";
  e.score_bias = keys.flag("score_bias", false);
  e.weigh_input = keys.flag("weigh_input", false);
  e.normalised = keys.flag("norm_topk_prob", true);
  read_expert_groups(keys, c);
  if (keys.find("jitter") != nullptr) e.jitter = *keys.find("jitter") == 0 ? 0 : keys.positive("jitter", 0);
  e.scale = keys.positive("routed_scaling_factor", 1);
  read_expert_layers(keys, c);
  if (keys.flag("output_router_logits", false))
    e.balance_loss = keys.positive("router_aux_loss_coef", kTransformersBalance) / expert_layers(c);
}

/// Refuses what the family may have and no program describes.
void refuse_features(const ConfigKeys& keys, const Family& family) {
  for (const std::string& key : family.off) {
    const json* value = keys.find(key.c_str());
    if (value != nullptr && *value != false && *value != 0)
      keys.lack(fmt::format("{} is {}: no program describes that yet", keys.name(key.c_str()),
                            core::shown(*value)));
  }
  if (!keys.flag("scale_attn_weights", true)) keys.refuse("scale_attn_weights", "true");
}

}  // namespace

ModelConfig read_family(const ConfigKeys& keys, const Family& family) {
  refuse_features(keys, family);
  ModelConfig c;
  c.left_out = family.fixed.value("left_out", "");
  c.arch = Arch::llama;
  read_kinds(keys, c);
  read_sizes(keys, c);
  read_attention(keys, c);
  read_latent(keys, c);
  read_positions(keys, c);
  read_windows(keys, c);
  read_experts(keys, c);
  if (const auto mtp = keys.count("num_mtp_layers", 0); mtp > 0 && keys.flag("use_mtp", true))
    c.other_parts = fmt::format("{} that predict{} further tokens",
                                mtp == 1 ? "one layer" : fmt::format("{} layers", mtp), mtp == 1 ? "s" : "");
  for (const Arch& known : {Arch::gpt2, Arch::llama}) {
    c.arch.name = known.name;
    const bool has_heads = known != Arch::gpt2 || c.kv_heads == c.heads;
    if (c.arch == known && has_heads) return c;
  }
  c.arch.name = family.types.front();
  return c;
}

namespace {

/// The text model of a file and its type.
struct TextModel {
  json config;
  std::string type;
  std::string wrapper;     ///< the model_type around it; empty: none
  bool is_nested = false;  ///< an object of its own in the file
};

/// The part for text of a model of several media, else the file itself.
TextModel text_model(const std::string& path, json root) {
  const auto string_of = [&](const json& object, const char* key) -> std::string {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return "";
    if (!found->is_string()) {
      throw core::InputError(
          fmt::format("{}: {} is {}, expected one of {}", path, key, core::shown(*found), known_families()));
    }
    return *found;
  };
  const std::string type = string_of(root, "model_type");
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    const auto found = root.find(key);
    if (found == root.end() || found->is_null()) continue;
    if (!found->is_object())
      throw core::InputError(fmt::format("{}: {} is {}, expected an object", path, key, core::shown(*found)));
    json text = *found;
    for (const char* shared : {"tie_word_embeddings", "vocab_size"}) {
      if (!text.contains(shared) && root.contains(shared)) text[shared] = root[shared];
    }
    std::string inner = string_of(text, "model_type");
    return {std::move(text), inner.empty() ? type : inner, type, true};
  }
  const bool sees = root.contains("vision_config") || root.contains("audio_config");
  return {std::move(root), type, sees ? type : ""};
}

/// The row of the model. Throws if there is none.
const Family& family_of(const std::string& path, const TextModel& text) {
  const auto fail = [&](const std::string& what) {
    throw core::InputError(fmt::format("{}: {}", path, what));
  };
  const auto found = text.config.find("architectures");
  const json names = found != text.config.end() ? *found : json();
  const bool is_model =
      !names.is_null() || text.config.contains("vocab_size") || text.config.contains("hidden_size");
  const Family* family = find_family(text.type);
  if (family == nullptr) family = find_family_of(names);  // a type of its own, or none
  const std::string said = text.type.empty() ? fmt::format("architectures is {}", core::shown(names))
                                             : fmt::format("model_type is {}", core::shown(text.type));
  std::string lacking = not_described(text.type, text.config);
  if (!is_model && family != nullptr) lacking = "";
  if (lacking.empty()) lacking = not_described_head(names);
  if (!lacking.empty())
    throw core::Unavailable(
        fmt::format("{}: {}, which has {}: no program describes them yet", path, said, lacking));
  if (family == nullptr) {
    // What is no model at all is bad input.
    if (text.type.empty() && names.is_null())
      fail(fmt::format("the key model_type is missing, expected one of {}", known_families()));
    if (!is_model) fail(fmt::format("{}, expected one of {}", said, known_families()));
    throw core::Unavailable(
        fmt::format("{}: {}: not described yet; known are {}", path, said, known_families()));
  }
  if (!names.is_null() && text.wrapper.empty() && !has_architecture(*family, names))
    fail(fmt::format("architectures is {}, expected {}", core::shown(names), family->architectures.front()));
  return *family;
}

/// Validates and names the configuration.
ModelConfig finish(ModelConfig config, const ConfigKeys& keys, const std::string& name) {
  const ModelConfig gpt2 = preset("gpt2");
  config.padded_vocab =
      config.arch == Arch::gpt2 && config.vocab == gpt2.vocab ? gpt2.padded_vocab : config.vocab;
  try {
    static_cast<void>(parameter_count(config));
  } catch (const core::UsageError& error) {
    keys.fail(error.what());
  }
  config.name = name;
  return config;
}

}  // namespace

ModelConfig parse_config(std::string_view text, const std::string& path, const std::string& name) {
  json root = core::parse_python_json_object(text, path, "config.json");
  const std::string stored_as = unread_weights(root);
  TextModel model = text_model(path, std::move(root));
  const Family& family = family_of(path, model);
  if (model.is_nested) {
    for (const auto& [key, value] : family.nested.items()) model.config.emplace(key, value);
  }
  const ConfigKeys keys(path, std::move(model.config), family);
  ModelConfig config = read_family(keys, family);
  config.stored_as = stored_as;
  config.family = model.wrapper.empty() && !model.type.empty() ? model.type : family.types.front();
  if (!model.wrapper.empty()) {
    config.other_parts += (config.other_parts.empty() ? "" : " and ") +
                          fmt::format("all that {} has besides its text model", model.wrapper);
  }
  return finish(std::move(config), keys, name);
}

ModelConfig read_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  const core::MappedFile file(path);
  const auto whole = std::filesystem::absolute(directory).lexically_normal();
  return parse_config(file.text(), path.string(),
                      (whole.has_filename() ? whole : whole.parent_path()).filename().string());
}

}  // namespace rooflm::model
