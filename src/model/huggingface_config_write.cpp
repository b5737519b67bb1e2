// Writes the config.json of Hugging Face directories.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "model/expert_layers.h"
#include "model/huggingface.h"

namespace rooflm::model {
namespace {

using nlohmann::ordered_json;

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

/// Families that are written: what sets each apart from Llama.
struct Written {
  const char* type;
  const char* architecture;
  bool windows = false;
  bool says_biases = false;  ///< attention_bias and mlp_bias
  bool qkv_bias = false;     ///< always
  bool no_rope = false;      ///< layers without rotary positions
  bool experts = false;      ///< in all layers, as wide as d_ff
};

constexpr std::array kWritten{
    Written{.type = "llama", .architecture = "LlamaForCausalLM", .says_biases = true},
    Written{.type = "mistral", .architecture = "MistralForCausalLM", .windows = true},
    Written{.type = "mixtral", .architecture = "MixtralForCausalLM", .windows = true, .experts = true},
    Written{.type = "smollm3",
            .architecture = "SmolLM3ForCausalLM",
            .windows = true,
            .says_biases = true,
            .no_rope = true},
    Written{.type = "qwen2", .architecture = "Qwen2ForCausalLM", .windows = true, .qkv_bias = true},
};

ordered_json llama_json(const ModelConfig& c) {
  const auto* const family = std::ranges::find_if(kWritten, [&](const Written& f) {
    const bool has_biases = f.says_biases || !(c.proj_bias || c.mlp_bias);
    const Experts& e = c.experts;
    const bool has_experts = f.experts
                                 ? e.count > 0 && e.in_layer.empty() && e.d_ff == c.d_ff &&
                                       e.shared_d_ff == 0 && e.normalised && !e.sigmoid_scores && e.scale == 1
                                 : e.count == 0;
    return has_experts && f.no_rope == !c.rotary.in_layer.empty() && has_biases &&
           f.qkv_bias == (c.qkv_bias && !c.proj_bias) && (f.windows || c.window == 0);
  });
  const std::string lacking = uncomputed(c);
  if (c.arch != Arch::llama || family == kWritten.end() || !lacking.empty()) {
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
  for (std::int64_t i = 0; i < c.layers && family->no_rope; ++i)
    root["no_rope_layers"].push_back(c.rotary.is_in(i) ? 1 : 0);
  if (!c.rope_scaling.empty()) {
    const Rotary& r = c.rotary;
    root["rope_scaling"] = {{"rope_type", c.rope_scaling}, {"factor", r.factor},
                            {"low_freq_factor", r.low},    {"high_freq_factor", r.high},
                            {"beta_fast", r.beta_fast},    {"beta_slow", r.beta_slow},
                            {"truncate", r.truncate},      {"original_max_position_embeddings", r.original}};
    if (r.attention > 0) root["rope_scaling"]["attention_factor"] = r.attention;
  }
  if (family->experts) {
    root["num_local_experts"] = c.experts.count;
    root["num_experts_per_tok"] = c.experts.active;
    root["output_router_logits"] = c.experts.balance_loss > 0;  // whether transformers adds the loss
    if (c.experts.balance_loss > 0) root["router_aux_loss_coef"] = c.experts.balance_loss * expert_layers(c);
  }
  if (c.max_seq > 0) root["max_position_embeddings"] = c.max_seq;
  return root;
}

}  // namespace

std::string config_json(const ModelConfig& config, core::DType dtype, const TextEnds& ends) {
  ordered_json root = config.arch == Arch::gpt2 ? gpt2_json(config) : llama_json(config);
  for (const auto& [key, id] : {std::pair("bos_token_id", ends.begin), std::pair("eos_token_id", ends.end)}) {
    if (id && *id < config.vocab) root[key] = *id;
  }
  root["torch_dtype"] = core::facts_of(dtype).torch_name;
  return root.dump(2) + "\n";
}

}  // namespace rooflm::model
