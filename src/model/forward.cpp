// Emits the forward pass of a model as a program.
#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/large_pages.h"
#include "core/scope.h"
#include "model/experts.h"
#include "model/parameters.h"
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
    if (config_.arch != Arch::gpt2) return x;
    return builder_.op(ops::kAddPositions, with_first({x, weight("wpe")}), {}, "x");
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

  /// x + attention(ln1(x)), then + feed_forward(ln2(x)).
  TensorId block(TensorId x, std::int64_t layer) {
    const auto scope = builder_.scope(fmt::format("h.{}", layer));
    const std::string h = fmt::format("h.{}.", layer);
    const TensorId attended =
        attention(norm(x, "ln1", h + "ln1"), h + "attention.", config_.window_of(layer));
    x = residual(x, attended, "residual1");
    const TensorId y = norm(x, "ln2", h + "ln2");
    const TensorId fed = config_.experts.are_in(layer) ? experts(y, h + "feed_forward.")
                                                       : feed_forward(y, h + "feed_forward.", config_.d_ff);
    return residual(x, fed, "residual2");
  }

  /// y = norm(x)  [B, T, C]
  TensorId norm(TensorId x, const std::string& block, const std::string& name) {
    const auto scope = builder_.scope(block);
    const Attributes attrs{{"eps", config_.norm_eps}, {"accumulate", false}};
    if (config_.arch == Arch::llama)
      return builder_.op(ops::kRmsNorm, {x, weight(name + ".weight")}, attrs, block);
    return builder_.op(ops::kLayerNorm, {x, weight(name + ".weight"), weight(name + ".bias")}, attrs, block);
  }

  /// logits [B*T, V] = x [B*T, C] W^T
  TensorId lm_head(TensorId x) {
    const auto scope = builder_.scope("lm_head");
    return matmul(x, weight(config_.tied_head ? "wte" : "lm_head.weight"), config_.d_model,
                  config_.padded_vocab, "logits");
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

  TensorId residual(TensorId x, TensorId branch, const std::string& block) {
    const auto scope = builder_.scope(block);
    return builder_.op(ops::kAdd, {x, branch}, {}, block);
  }

  TensorId attention(TensorId x, const std::string& prefix, std::int64_t window) {
    const auto scope = builder_.scope("attention");
    const std::int64_t heads_width = config_.heads * config_.head_dim;
    const std::int64_t qkv_width = heads_width + 2 * config_.kv_heads * config_.head_dim;
    Attributes heads{
        {"heads", config_.heads}, {"kv_heads", config_.kv_heads}, {"head_dim", config_.head_dim}};
    TensorId qkv = program::kNone;  // [B, T, (H + 2K) D]
    {
      const auto part = builder_.scope("qkv");
      qkv = linear(x, prefix + "qkv", config_.d_model, qkv_width, "qkv");
      if (config_.qk_norm) {
        Attributes norm = heads;
        norm.set("eps", config_.norm_eps);
        norm.set("accumulate", false);
        qkv = builder_.op(ops::kHeadNorm,
                          {qkv, weight(prefix + "q_norm.weight"), weight(prefix + "k_norm.weight")}, norm,
                          "qkv");
      }
      if (config_.arch == Arch::llama) {
        Attributes rope = heads;
        rope.set("theta", config_.rope_theta);
        rope.set("inverse", false);
        if (!config_.rope_scaling.empty()) rope.set("scaling", true);
        if (first_ != program::kNone) rope.set("positions", positions_);
        qkv = builder_.op(ops::kRope, with_first({qkv}), rope, "qkv");
      }
    }
    if (window > 0 && (positions_ > 0 ? positions_ : seq_) > window) heads.set("window", window);
    const TensorId y = positions_ == 0
                           ? builder_.op(ops::kAttention, {qkv}, heads, "attention")  // [B, T, H D]
                           : kept_attention(qkv, prefix, heads);
    const auto part = builder_.scope("proj");
    return linear(y, prefix + "proj", heads_width, config_.d_model, "proj");
  }

  std::vector<TensorId> with_first(std::vector<TensorId> inputs) const {
    if (first_ != program::kNone) inputs.push_back(first_);
    return inputs;
  }

  /// The layer's keys or values [B, K, P, D].
  TensorId cache(const std::string& name) {
    return builder_.program().add_tensor(
        {.name = name,
         .shape = {places_ > 0 ? places_ : batch_, config_.kv_heads, positions_, config_.head_dim},
         .role = program::Role::cache});
  }

  /// y [B, T, H D]; caches the keys and values of these rows.
  TensorId kept_attention(TensorId qkv, const std::string& prefix, Attributes heads) {
    const TensorId keys = cache(prefix + "keys");
    const TensorId values = cache(prefix + "values");
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
        {.name = "attention", .shape = {batch_, seq_, config_.heads * config_.head_dim}});
    heads.set("keys", heads.has("window") ? std::min(keys_, heads.integer("window")) : keys_);
    builder_.op_into(ops::kDecodeAttention, {qkv, first_, keys, values}, heads, {y, keys, values});
    return y;
  }

  TensorId feed_forward(TensorId x, const std::string& prefix, std::int64_t width) {
    const auto scope = builder_.scope("feed_forward");
    const bool is_llama = config_.arch == Arch::llama;
    TensorId h = program::kNone;  // [B, T, F], llama [B, T, 2F]
    {
      const auto part = builder_.scope("fc1");
      h = linear(x, prefix + "fc1", config_.d_model, is_llama ? 2 * width : width, "fc1");
    }
    {
      const auto part = builder_.scope("act");
      h = builder_.op(is_llama ? ops::kSwiGlu : ops::kGelu, {h}, {}, "act");  // [B, T, F]
    }
    const auto part = builder_.scope("fc2");
    return linear(h, prefix + "fc2", width, config_.d_model, "fc2");
  }

  /// y [B, T, C]: the weighted sum of each token's experts, and what all tokens take.
  TensorId experts(TensorId x, const std::string& prefix) {
    const auto scope = builder_.scope("feed_forward");
    const TensorId router = weight(prefix + "router.weight");
    const TensorId fc1 = weight(prefix + "experts.fc1.weight");
    const TensorId fc2 = weight(prefix + "experts.fc2.weight");
    const TensorId y =
        write_experts(builder_, config_.experts, x, {.router = router, .fc1 = fc1, .fc2 = fc2});
    const std::int64_t shared = config_.experts.shared_d_ff;
    if (shared == 0) return y;
    const auto part = builder_.scope("shared");
    return builder_.op(ops::kAdd, {y, feed_forward(x, prefix + "shared.", shared)}, {}, "y");
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
  if (config.arch == Arch::gpt2 && seq > config.max_seq) {
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
