// Reads rope_scaling and rope_parameters of config.json.
#include <cmath>

#include "model/config_keys.h"
#include "model/huggingface_family.h"

namespace rooflm::model {
namespace {

using nlohmann::json;

/// Yarn's factors of attention as DeepSeek has them: mscale of cos and sin, mscale_all_dim of queries and
/// keys.
void read_magnitudes(const ConfigKeys& keys, const char* key, const json& rope, ModelConfig& c) {
  const auto magnitude = [&](const char* name) {
    const auto found = rope.find(name);
    const bool is_there = found != rope.end() && !found->is_null() && *found != 0 && c.rotary.factor > 1;
    return is_there ? 0.1 * keys.positive(*found, key) * std::log(c.rotary.factor) + 1 : 1;
  };
  const double of_scores = magnitude("mscale_all_dim");
  if (c.rotary.attention == 0 && of_scores != 1 && magnitude("mscale") != 1)
    c.rotary.attention = magnitude("mscale") / of_scores;
  if (c.latent.kv_rank > 0 && of_scores != 1)
    c.query_scale = of_scores * of_scores / std::sqrt(static_cast<double>(c.head_dim));
}

/// One object of rope_scaling or rope_parameters. The type "default" scales nothing.
void read_one_rope(const ConfigKeys& keys, const char* key, const json& rope, ModelConfig& c) {
  const json type = rope.is_object() ? rope.value("rope_type", rope.value("type", json("default"))) : json();
  if (!type.is_string()) keys.refuse(key, "an object with a rope_type");
  const auto number = [&](const char* name, double otherwise) {
    const auto found = rope.find(name);
    return found == rope.end() || found->is_null() ? otherwise : keys.positive(*found, key);
  };
  c.rope_theta = number("rope_theta", c.rope_theta);
  if (rope.contains("partial_rotary_factor"))
    c.rotary.dims = std::llround(number("partial_rotary_factor", 1) * static_cast<double>(c.head_dim));
  if (type == "default" || type == "mrope") return;
  // HunYuan's, which is another theta: theta alpha^(D / (D - 2)).
  if (const double alpha = number("alpha", 1); type == "dynamic" && alpha != 1) {
    c.rope_theta *= std::pow(alpha, static_cast<double>(c.head_dim) / static_cast<double>(c.head_dim - 2));
    return;
  }
  c.rope_scaling = type.get<std::string>();
  Rotary& r = c.rotary;
  r.factor = number("factor", 1);
  r.low = number("low_freq_factor", 1);
  r.high = number("high_freq_factor", 4);
  r.original = number("original_max_position_embeddings",
                      keys.positive("original_max_position_embeddings", static_cast<double>(c.max_seq)));
  r.beta_fast = number("beta_fast", 32);
  r.beta_slow = number("beta_slow", 1);
  r.attention = number("attention_factor", 0);
  if (c.rope_scaling == "yarn") read_magnitudes(keys, key, rope, c);
  const auto truncate = rope.find("truncate");
  r.truncate = truncate == rope.end() || *truncate != false;
}

/// rope_parameters with an object for each kind of layer. Layers with a window have a theta of their own.
void read_rope_by_kind(const ConfigKeys& keys, const char* key, const json& rope, ModelConfig& c) {
  const auto found = rope.find("sliding_attention");
  read_one_rope(keys, key, rope.at("full_attention"), c);
  if (found == rope.end() || *found == rope.at("full_attention")) return;
  ModelConfig windowed = c;
  windowed.rope_scaling.clear();
  windowed.rotary.dims = 0;
  read_one_rope(keys, key, *found, windowed);
  const bool differs =
      !windowed.rope_scaling.empty() || rope.at("full_attention").contains("partial_rotary_factor");
  if (differs) c.left_out = "rotary positions that differ by kind of layer";
  c.window_theta = windowed.rope_theta;
}

}  // namespace

bool read_rope(const ConfigKeys& keys, const char* key, const json& rope, ModelConfig& c) {
  const bool is_by_kind = rope.is_object() && rope.contains("full_attention");
  is_by_kind ? read_rope_by_kind(keys, key, rope, c) : read_one_rope(keys, key, rope, c);
  return is_by_kind;
}

}  // namespace rooflm::model
