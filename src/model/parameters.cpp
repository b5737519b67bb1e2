// The parameters of a model.
#include "model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/rng.h"

namespace rooflm::model {
namespace {

using core::Shape;
using Init = Parameter::Init;

/// Collects the parameters of one model in order.
struct List {
  std::vector<Parameter> all;
  bool biases;  ///< of norms

  void matrix(const std::string& name, std::int64_t out, std::int64_t in, double std, bool bias) {
    all.push_back({.name = name + ".weight", .shape = {out, in}, .std = std, .decay = true});
    if (bias) all.push_back({.name = name + ".bias", .shape = {out}, .init = Init::zeros});
  }
  void experts(const std::string& name, std::int64_t count, std::int64_t out, std::int64_t in, double std) {
    all.push_back({.name = name + ".weight", .shape = {count, out, in}, .std = std, .decay = true});
  }
  void norm(const std::string& name, std::int64_t width) {
    all.push_back({.name = name + ".weight", .shape = {width}, .init = Init::ones});
    if (biases) all.push_back({.name = name + ".bias", .shape = {width}, .init = Init::zeros});
  }
};

/// FNV-1a hash of the name: the number of its random stream.
std::uint64_t stream_of(const std::string& name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

std::vector<Parameter> parameters(const ModelConfig& c) {
  constexpr double kStd = 0.02;
  const bool is_gpt2 = c.arch == Arch::gpt2;
  const double residual_std = is_gpt2 ? kStd / std::sqrt(2.0 * static_cast<double>(c.layers)) : kStd;
  List list{.all = {}, .biases = is_gpt2};
  const std::int64_t halves = is_gpt2 ? 1 : 2;  // gate and up
  const auto feed_forward = [&](const std::string& name, std::int64_t width) {
    list.matrix(name + "fc1", halves * core::Count(width), c.d_model, kStd, is_gpt2 || c.mlp_bias);
    list.matrix(name + "fc2", c.d_model, width, residual_std, is_gpt2 || c.mlp_bias);
  };
  constexpr std::size_t kOfLayer = 12;  // at most, per layer, and outside of layers
  list.all.reserve(kOfLayer * (static_cast<std::size_t>(std::min<std::int64_t>(c.layers, 1 << 14)) + 1));
  list.all.push_back({.name = "wte", .shape = {c.padded_vocab, c.d_model}, .std = kStd, .decay = true});
  if (is_gpt2) {
    list.all.push_back({.name = "wpe", .shape = {c.max_seq, c.d_model}, .std = kStd, .decay = true});
  }
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string h = fmt::format("h.{}.", layer);
    list.norm(h + "ln1", c.d_model);
    list.matrix(h + "attention.qkv", (core::Count(c.heads) + 2 * core::Count(c.kv_heads)) * c.head_dim,
                c.d_model, kStd, is_gpt2 || c.qkv_bias);
    if (c.qk_norm) {
      list.norm(h + "attention.q_norm", c.head_dim);
      list.norm(h + "attention.k_norm", c.head_dim);
    }
    list.matrix(h + "attention.proj", c.d_model, core::Count(c.heads) * c.head_dim, residual_std,
                is_gpt2 || c.proj_bias);
    list.norm(h + "ln2", c.d_model);
    if (!c.experts.are_in(layer)) {
      feed_forward(h + "feed_forward.", c.d_ff);
      continue;
    }
    const Experts& e = c.experts;
    list.matrix(h + "feed_forward.router", e.count, c.d_model, kStd, false);
    list.experts(h + "feed_forward.experts.fc1", e.count, halves * core::Count(e.d_ff), c.d_model, kStd);
    list.experts(h + "feed_forward.experts.fc2", e.count, c.d_model, e.d_ff, residual_std);
    if (e.shared_d_ff > 0) feed_forward(h + "feed_forward.shared.", e.shared_d_ff);
  }
  list.norm("ln_f", c.d_model);
  if (!c.tied_head) {
    list.all.push_back(
        {.name = "lm_head.weight", .shape = {c.padded_vocab, c.d_model}, .std = kStd, .decay = true});
  }
  return list.all;
}

void initial_values(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed,
                    std::int64_t first, std::span<float> out) {
  if (parameter.init != Init::normal) {
    std::ranges::fill(out, parameter.init == Init::ones ? 1.0F : 0.0F);
    return;
  }
  const bool has_padding = parameter.name == "wte" || parameter.name == "lm_head.weight";
  const std::int64_t used = has_padding ? config.vocab * config.d_model : parameter.shape.numel();
  const std::uint64_t stream = stream_of(parameter.name);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t element = first + static_cast<std::int64_t>(i);
    out[i] = element < used ? static_cast<float>(parameter.std) *
                                  core::normal(seed, stream, static_cast<std::uint64_t>(element))
                            : 0.0F;
  }
}

std::vector<float> initial_values(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(parameter.shape.numel()));
  initial_values(parameter, config, seed, 0, values);
  return values;
}

}  // namespace rooflm::model
