// Emits the forward pass of a model as a program.
#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/scope.h"
#include "core/system/large_pages.h"
#include "model/forward_paged.h"
#include "model/forward_writer.h"
#include "program/ops.h"

namespace rooflm::model {

namespace ops = program::ops;

TensorId Writer::embedding(TensorId tokens) {
  const auto scope = builder_.scope("embedding");
  TensorId x = builder_.op(ops::kEmbedding, {tokens, weight("wte")}, {}, "x");  // [B, T, C]
  Attributes positions;
  if (config_.arch.position_offset > 0) positions.set("offset", config_.arch.position_offset);
  if (config_.has_learned_positions())
    x = builder_.op(ops::kAddPositions, with_first({x, weight("wpe")}), positions, "x");
  x = scaled(x, config_.embedding_scale);
  return config_.arch.embedding_norm ? norm(x, "embedding_norm", "embedding_norm") : x;
}

void Writer::keep(std::int64_t positions, TensorId first, std::int64_t keys) {
  positions_ = positions;
  first_ = first;
  keys_ = keys;
}

void Writer::keep_in(TensorId slots, std::int64_t count) {
  slots_ = slots;
  places_ = count;
}

void Writer::keep_in_blocks(TensorId table, std::int64_t count, std::int64_t block) {
  table_ = table;
  places_ = count;
  block_ = block;
}

TensorId Writer::picked(TensorId x, TensorId rows) {
  const auto scope = builder_.scope("ln_f");
  return builder_.op(ops::kPickRows, {x, rows}, {}, "picked");
}

TensorId Writer::last_rows(TensorId x, TensorId lengths) {
  const auto scope = builder_.scope("ln_f");
  return builder_.op(ops::kLastRows, {x, lengths}, {}, "last");
}

TensorId Writer::block(TensorId x, std::int64_t layer) {
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

TensorId Writer::norm(TensorId x, const std::string& block, const std::string& name) {
  const auto scope = builder_.scope(block);
  const Arch& arch = config_.arch;
  const Attributes attrs{{"eps", config_.norm_eps}, {"accumulate", false}};
  const TensorId w = arch.norm_weight ? weight(name + ".weight") : program::kNone;
  if (arch.norm == Norm::rms) return builder_.op(ops::kRmsNorm, {x, w}, attrs, block);
  const TensorId b = arch.norm_weight && arch.norm_bias ? weight(name + ".bias") : program::kNone;
  return builder_.op(ops::kLayerNorm, {x, w, b}, attrs, block);
}

TensorId Writer::lm_head(TensorId x) {
  const auto scope = builder_.scope("lm_head");
  const TensorId w = weight(config_.tied_head ? "wte" : "lm_head.weight");
  const bool is_plain = config_.logit_scale == 1 && config_.logit_cap == 0;
  TensorId logits = matmul(x, w, config_.d_model, config_.padded_vocab,
                           is_plain && !config_.head_bias ? "logits" : "products");
  if (config_.head_bias)
    logits = builder_.op(ops::kBiasAdd, {logits, weight("lm_head.bias")}, {}, is_plain ? "logits" : "sums");
  return is_plain ? logits
                  : builder_.op(ops::kScaleCap, {logits},
                                {{"factor", config_.logit_scale}, {"cap", config_.logit_cap}}, "logits");
}

void Writer::loss(TensorId logits, TensorId targets) {
  const auto scope = builder_.scope("loss");
  const std::int64_t rows = batch_ * seq_;
  const double share = 1.0 / static_cast<double>(rows);
  const Attributes attrs{{"rows", rows}, {"valid", config_.vocab}, {"grad_scale", share}};
  const auto losses = builder_.ops(ops::kCrossEntropy, {logits, targets}, attrs, "losses");
  const TensorId loss =
      builder_.op(ops::kMean, {losses[0]}, {{"weight", share}, {"accumulate", false}}, "loss");
  (void)loss;
}

void Writer::reserve(program::Program& program, std::size_t weights) const {
  constexpr std::size_t kOps = 16;      // at most, per layer, and outside of layers
  constexpr std::size_t kTensors = 20;  // likewise, without weights
  constexpr std::size_t kTraining = 4;  // forward, backward, updates
  const auto parts = static_cast<std::size_t>(std::min<std::int64_t>(config_.layers, 1 << 14)) + 1;
  core::reserve_in_large_pages(program.ops, kTraining * kOps * parts);
  core::reserve_in_large_pages(program.tensors, kTraining * (weights + kTensors * parts));
}

TensorId Writer::weight(const std::string& name) {
  const program::Program& program = builder_.program();
  if (program.tensor(next_weight_).name == name) return next_weight_++;
  const TensorId earlier = program.find(name);
  if (earlier == program::kNone) throw std::logic_error("the model has no weight " + name);
  return earlier;
}

bool Writer::is_next(const std::string& name) {
  const auto& tensors = builder_.program().tensors;
  const auto next = static_cast<std::size_t>(next_weight_);
  return next < tensors.size() && tensors[next].name == name;
}

TensorId Writer::matmul(TensorId x, TensorId w, std::int64_t in, std::int64_t out, const std::string& name) {
  const core::Shape y = builder_.program().shape(x).with(-1, out);
  const Attributes attrs = ops::matmul_attributes({.m = y.numel() / out, .n = out, .k = in, .trans_b = true});
  return builder_.op(ops::kMatmul, {x, w}, attrs, name, {y});
}

TensorId Writer::linear(TensorId x, const std::string& weight_name, std::int64_t in, std::int64_t out,
                        const std::string& name) {
  const TensorId y = matmul(x, weight(weight_name + ".weight"), in, out, name);
  if (!is_next(weight_name + ".bias")) return y;
  return builder_.op(ops::kBiasAdd, {y, weight(weight_name + ".bias")}, {}, name);
}

TensorId Writer::scaled(TensorId x, double factor) {
  return factor == 1 ? x : builder_.op(ops::kScaleCap, {x}, {{"factor", factor}, {"cap", 0.0}}, "scaled");
}

TensorId Writer::residual(TensorId x, TensorId branch, const std::string& block) {
  const auto scope = builder_.scope(block);
  return builder_.op(ops::kAdd, {x, branch}, {}, block);
}

namespace {

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

program::Program paged_step(const ModelConfig& config, const PagedSize& size) {
  check_extents(config, size.rows, size.positions);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.latent.kv_rank > 0 || config.attention_of(layer).values_are_keys)
      throw core::Unavailable(
          fmt::format("{}: keys and values of its attention are not kept in blocks", config.name));
  }
  program::Program p;
  const auto input = [&](const char* name, const core::Shape& shape) {
    return p.add_tensor(
        {.name = name, .shape = shape, .dtype = core::DType::i32, .role = program::Role::input});
  };
  const TensorId tokens = input("tokens", {size.rows, 1});
  const TensorId first = input("first", {size.rows});
  const TensorId blocks = input("blocks", {size.rows, size.table()});
  const TensorId rows = input("picked", {size.results});
  Writer writer(p, config, size.rows, 1);
  writer.keep(size.positions, first, size.positions);
  writer.keep_in_blocks(blocks, size.blocks, size.block);
  const TensorId x = write_layers(writer, config, tokens);
  make_result(p, write_head(writer, writer.picked(x, rows)));
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
