// The parameters of a model.
#include "model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/checked.h"
#include "core/rng.h"

namespace rooflm::model {
namespace {

using core::Shape;
using Init = Parameter::Init;

constexpr double kStd = 0.02;

/// Collects the parameters of one model in order.
class List {
 public:
  explicit List(const ModelConfig& config)
      : c_(config),
        residual_std_(config.arch == Arch::gpt2 ? kStd / std::sqrt(2.0 * static_cast<double>(config.layers))
                                                : kStd) {
    constexpr std::size_t kOfLayer = 12;  // at most, per layer, and outside of layers
    all_.reserve(kOfLayer * (static_cast<std::size_t>(std::min<std::int64_t>(c_.layers, 1 << 14)) + 1));
  }

  std::vector<Parameter> take() && {
    embedding();
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) block(layer);
    norm("ln_f");
    if (!c_.tied_head) table("lm_head.weight", c_.padded_vocab);
    if (c_.head_bias) vector("lm_head.bias", c_.padded_vocab, Init::zeros);
    return std::move(all_);
  }

 private:
  void table(const std::string& name, std::int64_t rows) {
    all_.push_back({.name = name, .shape = {rows, c_.d_model}, .std = kStd, .decay = true});
  }
  void vector(const std::string& name, std::int64_t width, Init init) {
    all_.push_back({.name = name, .shape = {width}, .init = init});
  }
  void matrix(const std::string& name, std::int64_t out, std::int64_t in, double std, bool bias) {
    all_.push_back({.name = name + ".weight", .shape = {out, in}, .std = std, .decay = true});
    if (bias) vector(name + ".bias", out, Init::zeros);
  }
  void experts_matrix(const std::string& name, std::int64_t out, std::int64_t in, double std) {
    const Experts& e = c_.experts;
    all_.push_back({.name = name + ".weight", .shape = {e.count, out, in}, .std = std, .decay = true});
    if (e.biases) all_.push_back({.name = name + ".bias", .shape = {e.count, out}, .init = Init::zeros});
  }
  void norm(const std::string& name, std::int64_t width, bool bias) {
    vector(name + ".weight", width, Init::ones);
    if (bias) vector(name + ".bias", width, Init::zeros);
  }
  void norm(const std::string& name) {
    if (c_.arch.norm_weight) norm(name, c_.d_model, c_.arch.norm_bias);
  }
  void norm_before(const std::string& name) {
    if (c_.arch.norm_place != NormPlace::after) norm(name);
  }
  void norm_after(const std::string& name) {
    if (c_.arch.norm_place != NormPlace::before) norm(name);
  }
  [[nodiscard]] std::int64_t fc1_width(std::int64_t width) const {
    return c_.arch.gated ? 2 * core::Count(width) : core::Count(width);
  }

  void embedding() {
    table("wte", c_.padded_vocab);
    if (c_.has_learned_positions()) table("wpe", core::Count(c_.max_seq) + c_.arch.position_offset);
    if (c_.arch.embedding_norm) norm("embedding_norm");
  }

  void block(std::int64_t layer) {
    const std::string h = fmt::format("h.{}.", layer);
    norm_before(h + "ln1");
    const AttentionSize size = c_.attention_of(layer);
    if (c_.latent.kv_rank > 0) {
      latent_attention(h + "attention.", size);
    } else {
      attention(h + "attention.", size);
    }
    norm_after(h + "ln1_after");
    if (c_.arch.residual != Residual::parallel_one_norm) norm_before(h + "ln2");
    if (c_.experts.are_in(layer)) {
      experts(h + "feed_forward.");
    } else {
      feed_forward(h + "feed_forward.", c_.d_ff);
    }
    norm_after(h + "ln2_after");
  }

  void attention(const std::string& name, const AttentionSize& size) {
    const std::int64_t packed = core::Count(size.values_are_keys ? 1 : 2) * size.kv_heads;
    matrix(name + "qkv", (core::Count(size.heads) + packed) * size.qk_dim, c_.d_model, kStd,
           c_.arch.biases || c_.qkv_bias);
    switch (c_.qk_norm) {
      case QkNorm::none:
      case QkNorm::unweighted:
        break;
      case QkNorm::head:
        norm(name + "q_norm", size.qk_dim, c_.qk_norm_bias);
        norm(name + "k_norm", size.qk_dim, c_.qk_norm_bias);
        break;
      case QkNorm::heads:
      case QkNorm::whole:
        norm(name + "q_norm", core::Count(size.heads) * size.qk_dim, false);
        norm(name + "k_norm", core::Count(size.kv_heads) * size.qk_dim, false);
        break;
    }
    if (c_.sinks) vector(name + "sinks", size.heads, Init::zeros);
    matrix(name + "proj", c_.d_model, core::Count(size.heads) * size.v_dim, residual_std_,
           c_.arch.biases || c_.proj_bias);
  }

  void latent_attention(const std::string& name, const AttentionSize& size) {
    const LatentAttention& l = c_.latent;
    const std::int64_t q_width = core::Count(size.heads) * size.qk_dim;
    if (l.q_rank > 0) {
      matrix(name + "q_a", l.q_rank, c_.d_model, kStd, c_.qkv_bias);
      norm(name + "q_norm", l.q_rank, false);
      matrix(name + "q_b", q_width, l.q_rank, kStd, false);
    } else {
      matrix(name + "q", q_width, c_.d_model, kStd, false);
    }
    matrix(name + "kv_a", l.kv_rank, c_.d_model, kStd, c_.qkv_bias);
    matrix(name + "k_rotary", l.rotary_dim, c_.d_model, kStd, c_.qkv_bias);
    norm(name + "kv_norm", l.kv_rank, false);
    matrix(name + "kv_b", core::Count(size.heads) * (core::Count(l.plain_dim) + l.v_dim), l.kv_rank, kStd,
           false);
    if (size.index_heads > 0) {
      matrix(name + "index_q", core::Count(l.index_heads) * l.index_dim, l.q_rank, kStd, false);
      matrix(name + "index_k", l.index_dim, c_.d_model, kStd, false);
      norm(name + "index_norm", l.index_dim, true);
      matrix(name + "index_weights", l.index_heads, c_.d_model, kStd, false);
    }
    matrix(name + "proj", c_.d_model, core::Count(size.heads) * size.v_dim, residual_std_, c_.proj_bias);
  }

  void feed_forward(const std::string& name, std::int64_t width) {
    const bool bias = c_.arch.biases || c_.mlp_bias;
    matrix(name + "fc1", fc1_width(width), c_.d_model, kStd, bias);
    if (c_.arch.activation == Activation::xielu) vector(name + "act.weight", 2, Init::zeros);
    matrix(name + "fc2", c_.d_model, width, residual_std_, bias);
  }

  void experts(const std::string& name) {
    const Experts& e = c_.experts;
    if (e.has_own_norms) {
      norm(name + "experts_norm");
      vector(name + "router.scale", c_.d_model, Init::ones);
      vector(name + "router.expert_scale", e.count, Init::ones);
    }
    matrix(name + "router", e.count, c_.d_model, kStd, e.router_bias);
    if (e.score_bias) vector(name + "router.score_bias", e.count, Init::zeros);
    experts_matrix(name + "experts.fc1", fc1_width(e.d_ff), c_.d_model, kStd);
    experts_matrix(name + "experts.fc2", c_.d_model, e.d_ff, residual_std_);
    if (e.has_own_norms) norm(name + "experts_norm_after");
    if (e.shared_d_ff > 0) feed_forward(name + "shared.", e.shared_d_ff);
    if (e.has_own_norms) norm(name + "shared_norm_after");
    if (e.shared_gate) matrix(name + "shared_gate", 1, c_.d_model, kStd, false);
  }

  const ModelConfig& c_;
  double residual_std_;
  std::vector<Parameter> all_;
};

/// FNV-1a hash of the name: the number of its random stream.
std::uint64_t stream_of(const std::string& name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

std::vector<Parameter> parameters(const ModelConfig& config) { return List(config).take(); }

void initial_values(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed,
                    std::int64_t first, std::span<float> out) {
  if (parameter.init != Init::normal) {
    std::ranges::fill(out, parameter.init == Init::ones ? 1.0F : 0.0F);
    return;
  }
  const bool has_padding = parameter.name == "wte" || parameter.name == "lm_head.weight";
  const std::int64_t used = has_padding ? config.vocab * config.d_model : parameter.shape.numel();
  const std::uint64_t stream = stream_of(parameter.name);
  const std::int64_t end = first + static_cast<std::int64_t>(out.size());
  const auto std = static_cast<float>(parameter.std);
#pragma omp parallel for schedule(static)
  for (std::int64_t block = first / 4; block < (end + 3) / 4; ++block) {
    const auto normals = core::four_normals(seed, stream, static_cast<std::uint64_t>(block));
    const std::int64_t begin = std::max(first, 4 * block);
    for (std::int64_t element = begin; element < std::min(end, 4 * block + 4); ++element)
      out[static_cast<std::size_t>(element - first)] =
          element < used ? std * normals.at(static_cast<std::size_t>(element % 4)) : 0.0F;
  }
}

bool is_layer_matrix(const std::string& name, const core::Shape& shape) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  return shape.rank() == 2 && name.starts_with("h.") && name.ends_with(".weight") && !has("norm") &&
         !has("router") && !has("shared_gate");
}

std::vector<float> initial_values(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(parameter.shape.numel()));
  initial_values(parameter, config, seed, 0, values);
  return values;
}

}  // namespace rooflm::model
