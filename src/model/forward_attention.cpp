// Emits attention of all kinds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "model/forward_writer.h"
#include "model/rotary_scaling.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::model {

namespace ops = program::ops;

TensorId Writer::attention(TensorId x, const std::string& prefix, std::int64_t layer) {
  const auto scope = builder_.scope("attention");
  const AttentionSize size = config_.attention_of(layer);
  const std::int64_t window = config_.window_of(layer);
  Attributes heads{{"heads", size.heads}, {"kv_heads", size.kv_heads}, {"head_dim", size.qk_dim}};
  TensorId y = program::kNone;  // [B, T, H D]
  if (config_.latent.kv_rank > 0) {
    y = latent_attention(x, prefix, size);
  } else {
    TensorId qkv = program::kNone;  // [B, T, (H + 2K) D]
    {
      const auto part = builder_.scope("qkv");
      const std::int64_t packed = (size.values_are_keys ? 1 : 2) * size.kv_heads;
      qkv = linear(x, prefix + "qkv", config_.d_model, (size.heads + packed) * size.qk_dim, "qkv");
      if (!config_.qk_norm_rotated) qkv = normed_heads(qkv, prefix, heads, size, layer);
      if (config_.arch.positions == Positions::rotary && config_.rotary.is_in(layer))
        qkv = rotated(qkv, heads, size, window);
      if (config_.qk_norm_rotated) qkv = normed_heads(qkv, prefix, heads, size, layer);
    }
    const TensorId sinks = config_.sinks ? weight(prefix + "sinks") : program::kNone;
    y = size.values_are_keys ? sized_attention({qkv}, size, window)
                             : packed_attention(qkv, sinks, prefix, heads, layer);
  }
  const auto part = builder_.scope("proj");
  return linear(y, prefix + "proj", size.heads * size.v_dim, config_.d_model, "proj");
}

TensorId Writer::packed_attention(TensorId qkv, TensorId sinks, const std::string& prefix,
                                  const Attributes& heads, std::int64_t layer) {
  Attributes attrs = heads;
  const std::int64_t window = config_.window_of(layer);
  const std::int64_t longest = positions_ > 0 ? positions_ : seq_;
  if (window > 0 && longest > window) attrs.set(config_.chunked ? "chunk" : "window", window);
  if (config_.temperature > 0 && !config_.rotary.is_in(layer) &&
      static_cast<double>(longest) >= config_.temperature_floor) {
    attrs.set("temperature", config_.temperature);
    attrs.set("floor", config_.temperature_floor);
  }
  if (config_.score_cap > 0) attrs.set("cap", config_.score_cap);
  if (config_.query_scale > 0) attrs.set("scale", config_.query_scale);
  if (config_.arch.positions == Positions::alibi) attrs.set("alibi", true);
  if (config_.alibi_slopes != 1) attrs.set("slopes", config_.alibi_slopes);
  if (positions_ > 0) return kept_attention(qkv, sinks, prefix, heads, attrs);
  std::vector<TensorId> inputs = {qkv};
  if (sinks != program::kNone) inputs.push_back(sinks);
  return builder_.op(ops::kAttention, inputs, attrs, "attention");
}

TensorId Writer::normed_heads(TensorId qkv, const std::string& prefix, const Attributes& heads,
                              const AttentionSize& size, std::int64_t layer) {
  const QkNorm kind = config_.qk_norm;
  if (kind == QkNorm::none || (kind == QkNorm::unweighted && !config_.rotary.is_in(layer))) return qkv;
  std::vector<TensorId> inputs = {qkv}, biases;
  for (const char* const of : {"q_norm", "k_norm"}) {  // in the order of the parameters
    if (kind != QkNorm::unweighted) inputs.push_back(weight(prefix + of + ".weight"));
    if (config_.qk_norm_bias) biases.push_back(weight(prefix + of + ".bias"));
  }
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  if (size.values_are_keys) return builder_.op(ops::kMap, inputs, {}, "qkv");
  Attributes norm = heads;
  if (config_.qk_norm_bias) norm.set("head_biases", true);
  norm.set("eps", config_.norm_eps);
  norm.set("accumulate", false);
  norm.set("whole", kind == QkNorm::whole);
  norm.set("layer", config_.arch.norm == Norm::layer);
  return builder_.op(ops::kHeadNorm, std::move(inputs), norm, "qkv");
}

TensorId Writer::rotated(TensorId qkv, const Attributes& heads, const AttentionSize& size,
                         std::int64_t window) {
  if (size.values_are_keys) return builder_.op(ops::kMap, {qkv}, {}, "qkv");
  return rope(qkv, heads, window);
}

TensorId Writer::rope(TensorId x, Attributes attributes, std::int64_t window) {
  const bool is_other = window > 0 && config_.window_theta > 0;
  attributes.set("theta", is_other ? config_.window_theta : config_.rope_theta);
  attributes.set("inverse", false);
  if (config_.rotary.dims > 0 && !attributes.has("dims")) attributes.set("dims", config_.rotary.dims);
  // Dynamic scaling changes nothing up to the length that the model was trained with.
  const bool is_trained_length = std::max(positions_, seq_) <= config_.max_seq;
  const bool is_scaled =
      !config_.rope_scaling.empty() && !(config_.rope_scaling == "dynamic" && is_trained_length);
  if (is_scaled && !is_other) set_scaling(attributes);
  if (first_ != program::kNone) attributes.set("positions", positions_);
  return builder_.op(ops::kRope, with_first({x}), attributes, builder_.program().tensor(x).name);
}

void Writer::set_scaling(Attributes& rope) const {
  const Rotary& r = config_.rotary;
  rope.set("scaling", static_cast<std::int64_t>(scaling_of(config_)));
  rope.set("factor", r.factor);
  rope.set("low", r.low);
  rope.set("high", r.high);
  rope.set("original", r.original);
  rope.set("beta_fast", r.beta_fast);
  rope.set("beta_slow", r.beta_slow);
  rope.set("truncate", r.truncate);
  const bool is_yarn = scaling_of(config_) == program::RotaryScaling::yarn;
  const double usual = is_yarn && r.factor > 1 ? 0.1 * std::log(r.factor) + 1 : 1.0;
  rope.set("amplitude", r.attention > 0 ? r.attention : usual);
}

TensorId Writer::sized_attention(std::vector<TensorId> inputs, const AttentionSize& size,
                                 std::int64_t window) {
  const bool is_kept = positions_ > 0 && config_.latent.kv_rank > 0 && config_.latent.index_heads == 0;
  if (positions_ > 0 && !is_kept) {
    throw core::Unavailable(
        fmt::format("{}: decoding with attention of that kind is not described yet", config_.name));
  }
  Attributes attrs{{"heads", size.heads}, {"qk_dim", size.qk_dim}, {"v_dim", size.v_dim}};
  if (window > 0 && seq_ > window) attrs.set("window", window);
  if (config_.query_scale > 0) attrs.set("scale", config_.query_scale);
  const auto part = builder_.scope("flash");
  return builder_.op(ops::kLatentAttention, std::move(inputs), attrs, "attention");
}

TensorId Writer::latent_attention(TensorId x, const std::string& prefix, const AttentionSize& size) {
  const LatentAttention& l = config_.latent;
  const Attributes norm{{"eps", config_.norm_eps}, {"accumulate", false}};
  std::vector<TensorId> inputs, caches;
  const bool is_kept = positions_ > 0 && l.index_heads == 0;
  const bool is_absorbed = is_kept && first_ != program::kNone;
  {
    const auto part = builder_.scope("qkv");
    TensorId latent = program::kNone;  // [B, T, q rank]
    TensorId q = x;
    if (l.q_rank > 0) {
      q = linear(x, prefix + "q_a", config_.d_model, l.q_rank, "q_a");
      latent = builder_.op(ops::kRmsNorm, {q, weight(prefix + "q_norm.weight")}, norm, "q_norm");
      q = linear(latent, prefix + "q_b", l.q_rank, size.heads * size.qk_dim, "q");
    } else {
      q = linear(x, prefix + "q", config_.d_model, size.heads * size.qk_dim, "q");
    }
    q = rope(q,
             {{"heads", size.heads},
              {"kv_heads", std::int64_t{0}},
              {"head_dim", size.qk_dim},
              {"dims", l.rotary_dim},
              {"begin", l.plain_dim}},
             0);
    TensorId kv = linear(x, prefix + "kv_a", config_.d_model, l.kv_rank, "kv_a");
    TensorId rotary = linear(x, prefix + "k_rotary", config_.d_model, l.rotary_dim, "k_rotary");
    rotary = rope(rotary,
                  {{"heads", std::int64_t{1}},
                   {"kv_heads", std::int64_t{0}},
                   {"head_dim", l.rotary_dim},
                   {"dims", l.rotary_dim}},
                  0);
    kv = builder_.op(ops::kRmsNorm, {kv, weight(prefix + "kv_norm.weight")}, norm, "kv_norm");
    if (is_kept) caches = kept_latents(kv, rotary, prefix);
    if (!is_absorbed) kv = linear(kv, prefix + "kv_b", l.kv_rank, size.heads * (l.plain_dim + l.v_dim), "kv");
    inputs = {q, kv, rotary};
    if (size.index_heads > 0) inputs = indexed(std::move(inputs), x, latent, prefix);
  }
  if (!is_absorbed) return sized_attention(std::move(inputs), size, 0);
  inputs.insert(inputs.end(), {first_, weight(prefix + "kv_b.weight"), caches[0], caches[1]});
  Attributes attrs{{"heads", size.heads}, {"qk_dim", size.qk_dim}, {"v_dim", size.v_dim}, {"keys", keys_}};
  if (config_.query_scale > 0) attrs.set("scale", config_.query_scale);
  const auto part = builder_.scope("flash");
  const TensorId y =
      builder_.program().add_tensor({.name = "attention", .shape = {batch_, seq_, size.heads * size.v_dim}});
  builder_.op_into(ops::kDecodeLatentAttention, inputs, attrs, {y, caches[0], caches[1]});
  return y;
}

std::vector<TensorId> Writer::kept_latents(TensorId latent, TensorId rotary, const std::string& prefix) {
  const LatentAttention& l = config_.latent;
  const auto cache_of = [&](const char* name, std::int64_t width) {
    return cache(prefix + name, {{"kv_heads", std::int64_t{1}}, {"head_dim", width}});
  };
  std::vector<TensorId> caches = {cache_of("latents", l.kv_rank), cache_of("keys", l.rotary_dim)};
  if (first_ != program::kNone) return caches;
  std::vector<TensorId> inputs = {latent, rotary};
  if (slots_ != program::kNone) inputs.push_back(slots_);
  inputs.insert(inputs.end(), caches.begin(), caches.end());
  builder_.op_into(ops::kAppendLatents, inputs, {}, caches);
  return caches;
}

std::vector<TensorId> Writer::indexed(std::vector<TensorId> inputs, TensorId x, TensorId latent,
                                      const std::string& prefix) {
  const LatentAttention& l = config_.latent;
  inputs.push_back(linear(latent, prefix + "index_q", l.q_rank, l.index_heads * l.index_dim, "index_q"));
  const TensorId keys = linear(x, prefix + "index_k", config_.d_model, l.index_dim, "index_k");
  inputs.push_back(
      builder_.op(ops::kMap, {keys, weight(prefix + "index_norm.weight"), weight(prefix + "index_norm.bias")},
                  {}, "index_k"));
  inputs.push_back(linear(x, prefix + "index_weights", config_.d_model, l.index_heads, "index_weights"));
  return inputs;
}

std::vector<TensorId> Writer::with_first(std::vector<TensorId> inputs) const {
  if (first_ != program::kNone) inputs.push_back(first_);
  return inputs;
}

TensorId Writer::cache(const std::string& name, const Attributes& heads) {
  return builder_.program().add_tensor(
      {.name = name,
       .shape = {places_ > 0 ? places_ : batch_, heads.integer("kv_heads"), block_ > 0 ? block_ : positions_,
                 heads.integer("head_dim")},
       .role = program::Role::cache});
}

TensorId Writer::kept_attention(TensorId qkv, TensorId sinks, const std::string& prefix,
                                const Attributes& heads, Attributes attrs) {
  const TensorId keys = cache(prefix + "keys", heads);
  const TensorId values = cache(prefix + "values", heads);
  if (first_ == program::kNone) {
    const auto part = builder_.scope("qkv");
    std::vector<TensorId> inputs = {qkv};
    if (slots_ != program::kNone) inputs.push_back(slots_);
    inputs.insert(inputs.end(), {keys, values});
    builder_.op_into(ops::kAppendCache, inputs, heads, {keys, values});
  }
  std::vector<TensorId> inputs = {qkv};
  const bool is_paged = table_ != program::kNone;
  if (is_paged) {
    inputs.insert(inputs.end(), {first_, table_, keys, values});
  } else if (first_ != program::kNone) {
    inputs.insert(inputs.end(), {first_, keys, values});
  }
  if (sinks != program::kNone) inputs.push_back(sinks);
  if (first_ == program::kNone) return builder_.op(ops::kAttention, inputs, attrs, "attention");
  const auto part = builder_.scope("flash");
  const TensorId y = builder_.program().add_tensor(
      {.name = "attention", .shape = {batch_, seq_, heads.integer("heads") * heads.integer("head_dim")}});
  const std::int64_t window = attrs.has("window")  ? attrs.integer("window")
                              : attrs.has("chunk") ? attrs.integer("chunk")
                                                   : 0;
  attrs.set("keys", window > 0 ? std::min(keys_, window) : keys_);
  builder_.op_into(is_paged ? ops::kPagedAttention : ops::kDecodeAttention, inputs, attrs, {y, keys, values});
  return y;
}

}  // namespace rooflm::model
