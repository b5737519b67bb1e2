// Emits the forward pass of a model as a program.
#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/large_pages.h"
#include "core/scope.h"
#include "model/parameters.h"
#include "model/rotary_scaling.h"
#include "program/builder.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::model {
namespace {

namespace ops = program::ops;
using program::Attributes;
using program::Builder;
using program::TensorId;

/// Emits one model. Shapes in comments: B batch, T sequence, C channels, F feed-forward, V vocabulary.
class Writer {
 public:
  Writer(program::Program& program, const ModelConfig& config, std::int64_t batch, std::int64_t seq)
      : builder_(program), config_(config), batch_(batch), seq_(seq) {
    next_weight_ = static_cast<TensorId>(program.tensors.size());
    std::vector<Parameter> weights = parameters(config);
    reserve(program, weights.size());
    for (Parameter& p : weights) {
      program.add_tensor({.name = std::move(p.name),
                          .shape = p.shape,
                          .role = program::Role::weight,
                          .full_precision = true});
    }
  }

  TensorId embedding(TensorId tokens) {
    const auto scope = builder_.scope("embedding");
    TensorId x = builder_.op(ops::kEmbedding, {tokens, weight("wte")}, {}, "x");  // [B, T, C]
    if (config_.has_learned_positions())
      x = builder_.op(ops::kAddPositions, with_first({x, weight("wpe")}), {}, "x");
    x = scaled(x, config_.embedding_scale);
    return config_.arch.embedding_norm ? norm(x, "embedding_norm", "embedding_norm") : x;
  }

  /// From here on keys and values are cached. Rows begin at position `first` (kNone: 0); texts have `keys`
  /// tokens.
  void keep(std::int64_t positions, TensorId first, std::int64_t keys) {
    positions_ = positions;
    first_ = first;
    keys_ = keys;
  }
  /// The keys and values of text b go into slot slots[b] of `count`.
  void keep_in(TensorId slots, std::int64_t count) {
    slots_ = slots;
    places_ = count;
  }
  /// x [B, 1, C] of the last tokens of texts [B, T, C].
  TensorId last_rows(TensorId x, TensorId lengths) {
    const auto scope = builder_.scope("ln_f");
    return builder_.op(ops::kLastRows, {x, lengths}, {}, "last");
  }

  /// x + attention(ln1(x)), then + feed_forward(ln2(x)), or as Residual and NormPlace say.
  TensorId block(TensorId x, std::int64_t layer) {
    const auto scope = builder_.scope(fmt::format("h.{}", layer));
    const std::string h = fmt::format("h.{}.", layer);
    const Arch& arch = config_.arch;
    const bool has_after = arch.norm_place != NormPlace::before;
    const auto norm_of = [&](TensorId of, const std::string& name, bool is_there) {
      return is_there ? norm(of, name, h + name) : of;
    };
    const TensorId y = norm_of(x, "ln1", arch.norm_place != NormPlace::after);
    TensorId attended = attention(y, h + "attention.", layer);
    attended = scaled(norm_of(attended, "ln1_after", has_after), config_.residual_scale);
    const TensorId before = x;
    x = residual(x, attended, "residual1");
    const TensorId source = arch.residual == Residual::serial ? x : before;
    const TensorId z = arch.residual == Residual::parallel_one_norm
                           ? y
                           : norm_of(source, "ln2", arch.norm_place != NormPlace::after);
    TensorId fed = config_.experts.are_in(layer) ? experts(z, h + "feed_forward.")
                                                 : feed_forward(z, h + "feed_forward.", config_.d_ff);
    fed = scaled(norm_of(fed, "ln2_after", has_after), config_.residual_scale);
    return residual(x, fed, "residual2");
  }

  /// y = norm(x)  [B, T, C]
  TensorId norm(TensorId x, const std::string& block, const std::string& name) {
    const auto scope = builder_.scope(block);
    const Arch& arch = config_.arch;
    const Attributes attrs{{"eps", config_.norm_eps}, {"accumulate", false}};
    if (!arch.norm_weight) return builder_.op(ops::kMap, {x}, attrs, block);
    const TensorId w = weight(name + ".weight");
    if (arch.norm == Norm::rms) return builder_.op(ops::kRmsNorm, {x, w}, attrs, block);
    if (!arch.norm_bias) return builder_.op(ops::kMap, {x, w}, attrs, block);
    return builder_.op(ops::kLayerNorm, {x, w, weight(name + ".bias")}, attrs, block);
  }

  /// logits [B*T, V] = x [B*T, C] W^T
  TensorId lm_head(TensorId x) {
    const auto scope = builder_.scope("lm_head");
    const TensorId w = weight(config_.tied_head ? "wte" : "lm_head.weight");
    const bool is_plain = config_.logit_scale == 1 && config_.logit_cap == 0;
    TensorId logits = matmul(x, w, config_.d_model, config_.padded_vocab,
                             is_plain && !config_.head_bias ? "logits" : "products");
    if (config_.head_bias)
      logits = builder_.op(ops::kBiasAdd, {logits, weight("lm_head.bias")}, {}, is_plain ? "logits" : "sums");
    return is_plain ? logits
                    : builder_.op(ops::kMap, {logits},
                                  {{"factor", config_.logit_scale}, {"cap", config_.logit_cap}}, "logits");
  }

  void loss(TensorId logits, TensorId targets) {
    const auto scope = builder_.scope("loss");
    const std::int64_t rows = batch_ * seq_;
    const double share = 1.0 / static_cast<double>(rows);
    const Attributes attrs{{"rows", rows}, {"valid", config_.vocab}, {"grad_scale", share}};
    const auto losses = builder_.ops(ops::kCrossEntropy, {logits, targets}, attrs, "losses");
    const TensorId loss =
        builder_.op(ops::kMean, {losses[0]}, {{"weight", share}, {"accumulate", false}}, "loss");
    (void)loss;
  }

  void note_lines(std::map<std::string, program::SourceLine>& lines) { builder_.note_lines(lines); }

 private:
  /// Reserves memory for the whole program and for what differentiation and the optimizer add, so the lists
  /// of a deep model are not reallocated as they grow. Unused capacity costs no memory.
  void reserve(program::Program& program, std::size_t weights) const {
    constexpr std::size_t kOps = 16;      // at most, per layer, and outside of layers
    constexpr std::size_t kTensors = 20;  // likewise, without weights
    constexpr std::size_t kTraining = 4;  // forward, backward, updates
    const auto parts = static_cast<std::size_t>(std::min<std::int64_t>(config_.layers, 1 << 14)) + 1;
    core::reserve_in_large_pages(program.ops, kTraining * kOps * parts);
    core::reserve_in_large_pages(program.tensors, kTraining * (weights + kTensors * parts));
  }

  /// Weights are requested in the order of the parameters, except that a tied head reuses an earlier one.
  TensorId weight(const std::string& name) {
    const program::Program& program = builder_.program();
    if (program.tensor(next_weight_).name == name) return next_weight_++;
    const TensorId earlier = program.find(name);
    if (earlier == program::kNone) throw std::logic_error("the model has no weight " + name);
    return earlier;
  }

  /// Whether the model has that parameter after those that were asked for.
  [[nodiscard]] bool is_next(const std::string& name) {
    const auto& tensors = builder_.program().tensors;
    const auto next = static_cast<std::size_t>(next_weight_);
    return next < tensors.size() && tensors[next].name == name;
  }

  /// y [.., out] = x [.., in] W^T with W [out, in]
  TensorId matmul(TensorId x, TensorId w, std::int64_t in, std::int64_t out, const std::string& name) {
    const core::Shape y = builder_.program().shape(x).with(-1, out);
    const Attributes attrs{
        {"batch", 1},      {"m", y.numel() / out}, {"n", out},       {"k", in}, {"trans_a", false},
        {"trans_b", true}, {"accumulate", false},  {"looped", false}};
    return builder_.op(ops::kMatmul, {x, w}, attrs, name, {y});
  }

  TensorId linear(TensorId x, const std::string& weight_name, std::int64_t in, std::int64_t out,
                  const std::string& name) {
    const TensorId y = matmul(x, weight(weight_name + ".weight"), in, out, name);
    if (!is_next(weight_name + ".bias")) return y;
    return builder_.op(ops::kBiasAdd, {y, weight(weight_name + ".bias")}, {}, name);
  }

  /// factor * x
  TensorId scaled(TensorId x, double factor) {
    return factor == 1 ? x : builder_.op(ops::kMap, {x}, {{"factor", factor}, {"cap", 0.0}}, "scaled");
  }

  TensorId residual(TensorId x, TensorId branch, const std::string& block) {
    const auto scope = builder_.scope(block);
    return builder_.op(ops::kAdd, {x, branch}, {}, block);
  }

  TensorId attention(TensorId x, const std::string& prefix, std::int64_t layer) {
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
        qkv = normed_heads(qkv, prefix, heads, size);
        if (config_.arch.positions == Positions::rotary && config_.rotary.is_in(layer))
          qkv = rotated(qkv, heads, size);
      }
      if (window > 0 && (positions_ > 0 ? positions_ : seq_) > window) heads.set("window", window);
      y = size.values_are_keys ? sized_attention({qkv}, size, window)
          : positions_ == 0    ? builder_.op(ops::kAttention, {qkv}, heads, "attention")
                               : kept_attention(qkv, prefix, heads);
      if (config_.sinks) {
        const auto part = builder_.scope("softmax");
        y = builder_.op(ops::kMap, {y, weight(prefix + "sinks")}, {}, "attention");
      }
    }
    const auto part = builder_.scope("proj");
    return linear(y, prefix + "proj", size.heads * size.v_dim, config_.d_model, "proj");
  }

  TensorId normed_heads(TensorId qkv, const std::string& prefix, const Attributes& heads,
                        const AttentionSize& size) {
    if (config_.qk_norm == QkNorm::none) return qkv;
    if (config_.qk_norm == QkNorm::unweighted) return builder_.op(ops::kMap, {qkv}, {}, "qkv");
    const std::vector<TensorId> inputs = {qkv, weight(prefix + "q_norm.weight"),
                                          weight(prefix + "k_norm.weight")};
    if (size.values_are_keys) return builder_.op(ops::kMap, inputs, {}, "qkv");
    Attributes norm = heads;
    norm.set("eps", config_.norm_eps);
    norm.set("accumulate", false);
    if (config_.qk_norm != QkNorm::head) norm.set("whole", true);
    return builder_.op(ops::kHeadNorm, inputs, norm, "qkv");
  }

  TensorId rotated(TensorId qkv, const Attributes& heads, const AttentionSize& size) {
    if (size.values_are_keys) return builder_.op(ops::kMap, {qkv}, {}, "qkv");
    Attributes rope = heads;
    rope.set("theta", config_.rope_theta);
    rope.set("inverse", false);
    if (!config_.rope_scaling.empty()) set_scaling(rope);
    if (first_ != program::kNone) rope.set("positions", positions_);
    return builder_.op(ops::kRope, with_first({qkv}), rope, "qkv");
  }

  /// Of frequencies, as program/rotary.h reads it.
  void set_scaling(Attributes& rope) const {
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

  /// y [B, T, H Dv] of attention that no packed projection has.
  TensorId sized_attention(std::vector<TensorId> inputs, const AttentionSize& size, std::int64_t window) {
    if (positions_ > 0) {
      throw core::Unavailable(
          fmt::format("{}: decoding with attention of that kind is not described yet", config_.name));
    }
    Attributes attrs{{"heads", size.heads}, {"qk_dim", size.qk_dim}, {"v_dim", size.v_dim}};
    if (window > 0 && seq_ > window) attrs.set("window", window);
    const auto part = builder_.scope("flash");
    return builder_.op(ops::kLatentAttention, std::move(inputs), attrs, "attention");
  }

  /// y [B, T, H Dv]: queries, keys and values through matmuls of low rank.
  TensorId latent_attention(TensorId x, const std::string& prefix, const AttentionSize& size) {
    const LatentAttention& l = config_.latent;
    const Attributes norm{{"eps", config_.norm_eps}, {"accumulate", false}};
    std::vector<TensorId> inputs;
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
      q = builder_.op(ops::kMap, {q}, {}, "q");  // positions
      TensorId kv = linear(x, prefix + "kv_a", config_.d_model, l.kv_rank, "kv_a");
      const TensorId rotary = linear(x, prefix + "k_rotary", config_.d_model, l.rotary_dim, "k_rotary");
      kv = builder_.op(ops::kRmsNorm, {kv, weight(prefix + "kv_norm.weight")}, norm, "kv_norm");
      kv = linear(kv, prefix + "kv_b", l.kv_rank, size.heads * (l.plain_dim + l.v_dim), "kv");
      inputs = {q, kv, rotary};
      if (l.index_heads > 0) inputs = indexed(std::move(inputs), x, latent, prefix);
    }
    return sized_attention(std::move(inputs), size, 0);
  }

  /// q and what the keys' indexer computes for it: its scores count as a part of attention's inputs.
  std::vector<TensorId> indexed(std::vector<TensorId> inputs, TensorId x, TensorId latent,
                                const std::string& prefix) {
    const LatentAttention& l = config_.latent;
    inputs.push_back(linear(latent, prefix + "index_q", l.q_rank, l.index_heads * l.index_dim, "index_q"));
    const TensorId keys = linear(x, prefix + "index_k", config_.d_model, l.index_dim, "index_k");
    inputs.push_back(builder_.op(
        ops::kMap, {keys, weight(prefix + "index_norm.weight"), weight(prefix + "index_norm.bias")}, {},
        "index_k"));
    inputs.push_back(linear(x, prefix + "index_weights", config_.d_model, l.index_heads, "index_weights"));
    return inputs;
  }

  std::vector<TensorId> with_first(std::vector<TensorId> inputs) const {
    if (first_ != program::kNone) inputs.push_back(first_);
    return inputs;
  }

  /// The layer's keys or values [B, K, P, D].
  TensorId cache(const std::string& name, const Attributes& heads) {
    return builder_.program().add_tensor({.name = name,
                                          .shape = {places_ > 0 ? places_ : batch_, heads.integer("kv_heads"),
                                                    positions_, heads.integer("head_dim")},
                                          .role = program::Role::cache});
  }

  /// y [B, T, H D]; caches the keys and values of these rows.
  TensorId kept_attention(TensorId qkv, const std::string& prefix, Attributes heads) {
    const TensorId keys = cache(prefix + "keys", heads);
    const TensorId values = cache(prefix + "values", heads);
    if (first_ == program::kNone) {
      const auto part = builder_.scope("qkv");
      std::vector<TensorId> inputs = {qkv};
      if (slots_ != program::kNone) inputs.push_back(slots_);
      inputs.insert(inputs.end(), {keys, values});
      builder_.op_into(ops::kAppendCache, inputs, heads, {keys, values});
    }
    if (first_ == program::kNone) return builder_.op(ops::kAttention, {qkv}, heads, "attention");
    const auto part = builder_.scope("flash");
    const TensorId y = builder_.program().add_tensor(
        {.name = "attention", .shape = {batch_, seq_, heads.integer("heads") * heads.integer("head_dim")}});
    heads.set("keys", heads.has("window") ? std::min(keys_, heads.integer("window")) : keys_);
    builder_.op_into(ops::kDecodeAttention, {qkv, first_, keys, values}, heads, {y, keys, values});
    return y;
  }

  TensorId feed_forward(TensorId x, const std::string& prefix, std::int64_t width) {
    const auto scope = builder_.scope("feed_forward");
    TensorId h = program::kNone;  // [B, T, F], llama [B, T, 2F]
    {
      const auto part = builder_.scope("fc1");
      h = linear(x, prefix + "fc1", config_.d_model, config_.arch.gated ? 2 * width : width, "fc1");
    }
    {
      const auto part = builder_.scope("act");
      h = activated(h, prefix);  // [B, T, F]
    }
    const auto part = builder_.scope("fc2");
    return linear(h, prefix + "fc2", width, config_.d_model, "fc2");
  }

  TensorId activated(TensorId h, const std::string& prefix) {
    const Arch& arch = config_.arch;
    if (arch.gated && arch.activation == Activation::silu) return builder_.op(ops::kSwiGlu, {h}, {}, "act");
    if (!arch.gated && arch.activation == Activation::gelu_tanh)
      return builder_.op(ops::kGelu, {h}, {}, "act");
    if (arch.activation == Activation::xielu)
      h = builder_.op(ops::kMap, {h, weight(prefix + "act.weight")}, {}, "act");
    return builder_.op(ops::kActivate, {h}, {{"gated", arch.gated}}, "act");
  }

  /// y [B, T, C]: of each token's rows through its experts, weighted, and of what all tokens take. Experts
  /// have equally many rows, R = B T k / E, rounded up.
  TensorId experts(TensorId x, const std::string& prefix) {
    const Experts& e = config_.experts;
    const auto scope = builder_.scope("feed_forward");
    const TensorId before = x;
    const std::int64_t tokens = builder_.program().shape(x).numel() / config_.d_model;
    Attributes routing{{"experts", e.count}, {"active", e.active}};
    const std::int64_t touched = std::min(e.count, tokens * e.active);
    if (positions_ > 0 && touched < e.count) routing.set("touched", touched);
    std::vector<TensorId> route;     // weights [B T, k], places [B T, k]
    TensorId rows = program::kNone;  // [E, R, C]
    {
      const auto part = builder_.scope("router");
      if (e.has_own_norms) x = norm(x, "experts_norm", prefix + "experts_norm");
      TensorId routed = x;
      std::vector<TensorId> scales;
      if (e.has_own_norms) scales = {weight(prefix + "router.scale"), weight(prefix + "router.expert_scale")};
      if (e.has_own_norms) routed = builder_.op(ops::kMap, {x, scales[0]}, {}, "routed");
      TensorId scores = linear(routed, prefix + "router", config_.d_model, e.count, "scores");
      if (e.has_own_norms) scores = builder_.op(ops::kMap, {scores, scales[1]}, {}, "scores");
      if (e.score_bias)
        scores = builder_.op(ops::kMap, {scores, weight(prefix + "router.score_bias")}, {}, "scores");
      route = builder_.ops(ops::kRoute, {scores}, routing, "route");
      rows = builder_.op(ops::kDispatch, {x, route[1]}, routing, "rows");
    }
    {
      const auto part = builder_.scope("fc1");
      rows = expert_linear(rows, prefix + "experts.fc1", "fc1");  // [E, R, 2F]
    }
    {
      const auto part = builder_.scope("act");
      rows = activated(rows, prefix);
    }
    TensorId y = program::kNone;
    {
      const auto part = builder_.scope("fc2");
      rows = expert_linear(rows, prefix + "experts.fc2", "fc2");
      y = builder_.op(ops::kCombine, {rows, route[0], route[1]}, routing, "y", {builder_.program().shape(x)});
    }
    if (e.has_own_norms) y = norm(y, "experts_norm_after", prefix + "experts_norm_after");
    if (e.shared_d_ff == 0) return y;
    const auto part = builder_.scope("shared");
    TensorId shared = feed_forward(before, prefix + "shared.", e.shared_d_ff);
    if (e.has_own_norms) shared = norm(shared, "shared_norm_after", prefix + "shared_norm_after");
    if (e.shared_gate)
      shared = builder_.op(ops::kMap, {shared, weight(prefix + "shared_gate.weight")}, {}, "shared");
    return builder_.op(ops::kAdd, {y, shared}, {}, "y");
  }

  TensorId expert_linear(TensorId rows, const std::string& name, const std::string& block) {
    const TensorId y = expert_matmul(rows, weight(name + ".weight"), block);
    return config_.experts.biases ? builder_.op(ops::kMap, {y, weight(name + ".bias")}, {}, block) : y;
  }

  /// Reads no more weights than those of the experts that have rows.
  TensorId expert_matmul(TensorId rows, TensorId w, const std::string& name) {
    const core::Shape& of_rows = builder_.program().shape(rows);
    const std::int64_t out = builder_.program().shape(w)[1];
    const Attributes attrs{{"batch", of_rows[0]}, {"m", of_rows[1]},  {"n", out},
                           {"k", of_rows[2]},     {"trans_a", false}, {"trans_b", true},
                           {"accumulate", false}, {"looped", false}};
    program::Op op = builder_.make(ops::kMatmul, {rows, w}, attrs);
    if (of_rows[0] < config_.experts.count) op.input_offset = {0, 0};
    return builder_.program().append(std::move(op), name).at(0);
  }

  Builder builder_;
  const ModelConfig& config_;
  std::int64_t batch_, seq_;
  TensorId next_weight_;
  std::int64_t positions_ = 0;  ///< positions per cache; 0: no cache
  std::int64_t keys_ = 0;
  std::int64_t places_ = 0;  ///< slots of the caches; 0: one per text of the batch
  TensorId first_ = program::kNone, slots_ = program::kNone;
};

program::Tensor ids(const char* name, std::int64_t batch, std::int64_t seq) {
  return {.name = name, .shape = {batch, seq}, .dtype = core::DType::i32, .role = program::Role::input};
}

/// The layers: x [B, T, C].
TensorId write_layers(Writer& writer, const ModelConfig& config, TensorId tokens) {
  TensorId x = writer.embedding(tokens);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) x = writer.block(x, layer);
  return x;
}

TensorId write_head(Writer& writer, TensorId x) { return writer.lm_head(writer.norm(x, "ln_f", "ln_f")); }

/// Everything except the loss.
TensorId write_logits(Writer& writer, const ModelConfig& config, TensorId tokens) {
  return write_head(writer, write_layers(writer, config, tokens));
}

void make_result(program::Program& p, TensorId logits) {
  p.tensor(logits).role = program::Role::result;
  p.tensor(logits).full_precision = true;
}

void check_extents(const ModelConfig& config, std::int64_t batch, std::int64_t seq) {
  validate(config);
  if (batch <= 0 || seq <= 0) {
    throw core::UsageError(fmt::format("--batch {} and --seq {} must be positive", batch, seq));
  }
  if (config.has_learned_positions() && seq > config.max_seq) {
    throw core::UsageError(
        fmt::format("--seq {} exceeds the {} positions of {}", seq, config.max_seq, config.name));
  }
}

/// One int32 per text.
program::Tensor per_text(const char* name, std::int64_t batch) {
  return {.name = name, .shape = {batch}, .dtype = core::DType::i32, .role = program::Role::input};
}

/// Processes `texts` prompts: all texts, or with `into_slots` those that join others.
program::Program write_prefill(const ModelConfig& config, const CacheSize& size, std::int64_t texts,
                               std::int64_t seq, bool into_slots) {
  check_extents(config, size.batch, size.positions);
  check_extents(config, texts, seq);
  if (seq > size.positions) {
    throw core::UsageError(
        fmt::format("texts of {} tokens: keys and values are kept of {}", seq, size.positions));
  }
  program::Program p;
  const TensorId tokens = p.add_tensor(ids("tokens", texts, seq));
  const TensorId lengths = p.add_tensor(per_text("lengths", texts));
  const TensorId slots = into_slots ? p.add_tensor(per_text("slots", texts)) : program::kNone;
  Writer writer(p, config, texts, seq);
  writer.keep(size.positions, program::kNone, seq);
  if (into_slots) writer.keep_in(slots, size.batch);
  const TensorId x = write_layers(writer, config, tokens);
  make_result(p, write_head(writer, writer.last_rows(x, lengths)));
  return p;
}

/// "src/model/forward.cpp", wherever the compiler found it.
std::string path_in_tree(std::string_view file) {
  const auto at = file.rfind("src/");
  return std::string(at == std::string_view::npos ? file : file.substr(at));
}

}  // namespace

program::Program forward(const ModelConfig& config, std::int64_t batch, std::int64_t seq, Head head) {
  check_extents(config, batch, seq);
  program::Program p;
  const TensorId tokens = p.add_tensor(ids("tokens", batch, seq));
  Writer writer(p, config, batch, seq);
  const TensorId logits = write_logits(writer, config, tokens);
  if (head == Head::logits) {
    make_result(p, logits);
  } else {
    writer.loss(logits, p.add_tensor(ids("targets", batch, seq)));
  }
  return p;
}

program::Program prefill(const ModelConfig& config, const CacheSize& size, std::int64_t seq) {
  return write_prefill(config, size, size.batch, seq, false);
}

program::Program prefill_slots(const ModelConfig& config, const CacheSize& size, std::int64_t texts,
                               std::int64_t seq) {
  return write_prefill(config, size, texts, seq, true);
}

program::Program decode(const ModelConfig& config, const CacheSize& size, std::int64_t keys) {
  check_extents(config, size.batch, size.positions);
  program::Program p;
  const TensorId tokens = p.add_tensor(ids("tokens", size.batch, 1));
  const TensorId first = p.add_tensor(per_text("first", size.batch));
  Writer writer(p, config, size.batch, 1);
  writer.keep(size.positions, first, keys);
  make_result(p, write_logits(writer, config, tokens));
  return p;
}

program::Program with_choice(program::Program program, const ModelConfig& config) {
  const TensorId logits = program.find("logits");
  if (logits == program::kNone) throw std::logic_error("a program without logits has no most likely token");
  program.tensor(logits).role = program::Role::activation;  // fp32, as before
  Builder builder(program);
  const auto scope = builder.scope("lm_head");
  const TensorId next = builder.op(ops::kArgmax, {logits}, {{"valid", config.vocab}}, "next");
  program.tensor(next).role = program::Role::result;
  return program;
}

std::vector<BlockSource> block_sources(const ModelConfig& config) {
  ModelConfig one_layer = config;
  one_layer.layers = 1;
  program::Program p;
  const TensorId tokens = p.add_tensor(ids("tokens", 1, 1));
  Writer writer(p, one_layer, 1, 1);
  std::map<std::string, program::SourceLine> lines;
  writer.note_lines(lines);
  writer.loss(write_logits(writer, one_layer, tokens), p.add_tensor(ids("targets", 1, 1)));
  std::vector<BlockSource> sources;
  for (const auto& [scope, at] : lines) {
    sources.push_back(
        {.block = std::string(core::Scope(scope).part()), .file = path_in_tree(at.file), .line = at.line});
  }
  return sources;
}

}  // namespace rooflm::model
