// Presets, overrides and parameter counts.
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/checked.h"
#include "core/error.h"
#include "core/json.h"
#include "core/names.h"
#include "model/family_table.h"
#include "model/flop_conventions.h"
#include "model/huggingface.h"
#include "model/parameters.h"
#include "model/rotary_scaling.h"

namespace rooflm::model {
namespace {

using core::Count;

struct Preset {
  const char* name;
  Arch arch;
  std::int64_t d_model, d_ff, layers, heads, kv_heads, vocab, max_seq;
  double rope_theta;
  std::int64_t experts = 0, active = 0;  ///< of width d_ff
};

/// `tiny` to `2.7B`: the sizes of the source reports, vocabulary 10,000. tiny-moe: each token computes as
/// much as in tiny. gpt2*: Radford et al., 2019. llama3: Grattafiori et al., 2024, table 3. gpt3: Brown et
/// al., 2020, table 2.1.
constexpr std::array kPresets = {
    Preset{"tiny", Arch::llama, 512, 1344, 4, 16, 16, 10000, 0, 1e4},
    Preset{"small", Arch::llama, 768, 3072, 12, 12, 12, 10000, 0, 1e4},
    Preset{"medium", Arch::llama, 1024, 4096, 24, 16, 16, 10000, 0, 1e4},
    Preset{"large", Arch::llama, 1280, 5120, 36, 20, 20, 10000, 0, 1e4},
    Preset{"xl", Arch::llama, 1600, 6400, 48, 25, 25, 10000, 0, 1e4},
    Preset{"2.7B", Arch::llama, 2560, 10240, 32, 32, 32, 10000, 0, 1e4},
    Preset{"tiny-moe", Arch::llama, 512, 672, 4, 16, 16, 10000, 0, 1e4, 8, 2},
    Preset{"gpt2", Arch::gpt2, 768, 3072, 12, 12, 12, 50257, 1024, 1e4},
    Preset{"gpt2-medium", Arch::gpt2, 1024, 4096, 24, 16, 16, 50257, 1024, 1e4},
    Preset{"gpt2-large", Arch::gpt2, 1280, 5120, 36, 20, 20, 50257, 1024, 1e4},
    Preset{"gpt2-xl", Arch::gpt2, 1600, 6400, 48, 25, 25, 50257, 1024, 1e4},
    Preset{"llama3-8b", Arch::llama, 4096, 14336, 32, 32, 8, 128256, 8192, 5e5},
    Preset{"llama3-70b", Arch::llama, 8192, 28672, 80, 64, 8, 128256, 8192, 5e5},
    Preset{"gpt3-175b", Arch::gpt2, 12288, 49152, 96, 96, 96, 50257, 2048, 1e4},
};

constexpr std::int64_t kVocabMultiple = 128;
constexpr double kBalanceLoss = 0.01;  // Fedus et al., 2021

/// Published models, of which the config.json is the preset.
const nlohmann::json& published_presets() {
  static const nlohmann::json kRows =
      core::parse_json_object(presets_text(), "data/presets.json", "the presets").at("presets");
  return kRows;
}

void require_positive(std::int64_t value, const char* option) {
  if (value <= 0) throw core::UsageError(fmt::format("{} must be positive, got {}", option, value));
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Preset& p : kPresets) names.emplace_back(p.name);
    for (const auto& one : published_presets()) names.push_back(one.at("name"));
    return names;
  }();
  return kNames;
}

ModelConfig preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    const bool pads = p.vocab == 50257;
    Experts experts{.count = p.experts, .active = p.active};
    if (p.experts > 0) {
      experts.d_ff = p.d_ff;
      experts.balance_loss = kBalanceLoss;
    }
    return {.name = p.name,
            .arch = p.arch,
            .layers = p.layers,
            .heads = p.heads,
            .kv_heads = p.kv_heads,
            .d_model = p.d_model,
            .d_ff = p.d_ff,
            .head_dim = p.d_model / p.heads,
            .vocab = p.vocab,
            .padded_vocab = pads ? (p.vocab + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple : p.vocab,
            .max_seq = p.max_seq,
            .rope_theta = p.rope_theta,
            .tied_head = p.arch == Arch::gpt2,
            .experts = experts};
  }
  for (const auto& one : published_presets()) {
    if (one.at("name") == name)
      return parse_config(one.at("config").dump(), "data/presets.json", std::string(name));
  }
  throw core::UsageError(core::unknown_name("model", name, preset_names()));
}

void validate(const ModelConfig& c) {
  require_positive(c.layers, "--layers");
  require_positive(c.heads, "--heads");
  require_positive(c.kv_heads, "--kv-heads");
  require_positive(c.d_model, "--d-model");
  require_positive(c.d_ff, "--d-ff");
  require_positive(c.vocab, "--vocab");
  require_positive(c.head_dim, "head size");
  if (c.heads % c.kv_heads != 0) {
    throw core::UsageError(fmt::format("--kv-heads {} does not divide --heads {}", c.kv_heads, c.heads));
  }
  if (c.arch == Arch::gpt2 && c.kv_heads != c.heads) {
    throw core::UsageError(
        fmt::format("the gpt2 kind has as many key/value heads as heads: --kv-heads {} with --heads {}",
                    c.kv_heads, c.heads));
  }
  const bool is_whole_head = c.rotary.dims == 0 && c.latent.kv_rank == 0;
  if (c.arch.positions == Positions::rotary && is_whole_head && c.head_dim % 2 != 0) {
    throw core::UsageError(
        fmt::format("rotary positions need an even head size, --d-model {} / --heads {} gives {}", c.d_model,
                    c.heads, c.head_dim));
  }
  if (c.experts.count > 0 && (c.experts.active <= 0 || c.experts.active > c.experts.count)) {
    throw core::UsageError(
        fmt::format("each token takes {} of {} experts", c.experts.active, c.experts.count));
  }
  if (c.padded_vocab < c.vocab) {
    throw core::UsageError(
        fmt::format("padded vocabulary {} is smaller than the vocabulary {}", c.padded_vocab, c.vocab));
  }
}

ModelConfig with_overrides(ModelConfig config, const Overrides& o) {
  if (o.arch && *o.arch != config.arch) {
    config.arch = *o.arch;
    config.tied_head = config.arch == Arch::gpt2;
    if (config.arch == Arch::gpt2) {
      config.kv_heads = config.heads;
      config.max_seq = std::max<std::int64_t>(1024, o.seq.value_or(0));
    }
    if (config.arch == Arch::llama) config.max_seq = 0;
    // Only the sizes stay.
    config = {.name = config.name,
              .arch = config.arch,
              .layers = config.layers,
              .heads = config.heads,
              .kv_heads = config.kv_heads,
              .d_model = config.d_model,
              .d_ff = config.d_ff,
              .head_dim = config.head_dim,
              .vocab = config.vocab,
              .padded_vocab = config.padded_vocab,
              .max_seq = config.max_seq,
              .norm_eps = config.norm_eps,
              .rope_theta = config.rope_theta,
              .tied_head = config.tied_head};
  }
  if (o.heads) {
    require_positive(*o.heads, "--heads");
    const bool was_grouped = config.kv_heads != config.heads;
    config.heads = *o.heads;
    if (!was_grouped) config.kv_heads = *o.heads;
  }
  if (o.layers) config.layers = *o.layers;
  if (o.kv_heads) config.kv_heads = *o.kv_heads;
  if (o.d_model) config.d_model = *o.d_model;
  if (o.d_ff) config.d_ff = config.experts.d_ff = *o.d_ff;
  if (o.vocab) config.vocab = config.padded_vocab = *o.vocab;
  if (o.head_dim) config.head_dim = *o.head_dim;
  if (o.positions) config.max_seq = *o.positions;
  if ((o.heads || o.d_model) && !o.head_dim) {
    require_positive(config.d_model, "--d-model");
    if (config.d_model % config.heads != 0) {
      throw core::UsageError(
          fmt::format("--heads {} does not divide --d-model {}", config.heads, config.d_model));
    }
    config.head_dim = config.d_model / config.heads;
  }
  validate(config);
  return config;
}

bool ModelConfig::has_unlike_layers() const {
  const auto differ = [](const std::vector<bool>& by_layer) {
    return std::ranges::adjacent_find(by_layer, std::ranges::not_equal_to()) != by_layer.end();
  };
  return (window > 0 && differ(windowed)) || (experts.count > 0 && differ(experts.in_layer)) ||
         differ(rotary.in_layer);
}

AttentionSize ModelConfig::attention_of(std::int64_t layer) const {
  if (latent.kv_rank > 0) {
    const std::int64_t qk_dim = core::Count(latent.plain_dim) + latent.rotary_dim;
    const std::vector<bool>& in_layer = latent.index_in_layer;
    const bool has_index = in_layer.empty() || in_layer[static_cast<std::size_t>(layer) % in_layer.size()];
    return {.heads = heads,
            .kv_heads = heads,
            .qk_dim = qk_dim,
            .v_dim = latent.v_dim,
            .index_heads = has_index ? latent.index_heads : 0};
  }
  AttentionSize size{.heads = heads, .kv_heads = kv_heads, .qk_dim = head_dim, .v_dim = head_dim};
  if (window_of(layer) > 0) return size;
  if (full_head_dim > 0) size.qk_dim = size.v_dim = full_head_dim;
  if (full_kv_heads > 0) size.kv_heads = full_kv_heads;
  size.values_are_keys = full_values_are_keys;
  return size;
}

program::RotaryScaling scaling_of(const ModelConfig& config) {
  using program::RotaryScaling;
  if (config.rope_scaling == "linear") return RotaryScaling::linear;
  if (config.rope_scaling == "llama3") return RotaryScaling::llama3;
  return config.rope_scaling == "yarn" ? RotaryScaling::yarn : RotaryScaling::other;
}

std::string uncomputed(const ModelConfig& c) {
  if (const Experts& e = c.experts; e.count > 0) {
    if (e.has_own_norms) return "experts with norms of their own";
  }
  if (!c.rope_scaling.empty() && c.rope_scaling != "dynamic" &&
      scaling_of(c) == program::RotaryScaling::other)
    return fmt::format("rotary positions scaled by {}", c.rope_scaling);
  if (c.full_values_are_keys) return "attention whose values are its keys";
  return c.left_out;
}

namespace {

/// The sum of `count` over the parameters. Layers of a kind are counted once.
template <class Counted>
Count sum_of_parameters(const ModelConfig& config, const Counted& counted) {
  const auto with_layers = [&](std::int64_t layers) {
    ModelConfig shallow = config;
    shallow.layers = layers;
    Count n = 0;
    for (const Parameter& p : parameters(shallow)) n += counted(p);
    return n;
  };
  if (config.has_unlike_layers()) return with_layers(config.layers);
  // All layers have the same parameters: one layer is the difference of two models.
  const Count one = with_layers(1);
  const Count layer = with_layers(2) - one;
  return one + Count(config.layers - 1) * layer;
}

}  // namespace

std::int64_t parameter_count(const ModelConfig& config) {
  return sum_of_parameters(config, [](const Parameter& p) { return Count(p.shape.numel()); }) -
         padding_count(config);
}

std::int64_t active_parameter_count(const ModelConfig& config) {
  const auto active = [&](const Parameter& p) {
    Count n = p.shape.numel();
    if (p.name.find(".experts.") != std::string::npos) n = n / config.experts.count * config.experts.active;
    return n;
  };
  return sum_of_parameters(config, active) - padding_count(config);
}

std::int64_t padding_count(const ModelConfig& c) {
  return Count(c.padded_vocab - c.vocab) * c.d_model * (c.tied_head ? 1 : 2);
}

std::int64_t matmul_parameter_count(const ModelConfig& config) {
  const auto of_matmuls = [](const Parameter& p) {
    const bool is_matrix = p.shape.rank() > 1 && p.name != "wte" && p.name != "wpe";
    return is_matrix ? Count(p.shape.numel()) : Count(0);
  };
  const Count tied = config.tied_head ? Count(config.padded_vocab) * config.d_model : Count(0);
  return sum_of_parameters(config, of_matmuls) + tied;
}

std::int64_t counted_pairs(std::int64_t seq, std::int64_t window, bool chunked) {
  if (chunked && window > 0 && window < seq)
    return Count(window) * (seq - seq % window) + Count(seq % window) * (seq % window);
  const std::int64_t seen = window > 0 ? std::min(window, seq) : seq;
  return 2 * Count(seen) * seq - Count(seen) * seen;
}

std::int64_t model_flop_per_token(const ModelConfig& c, std::int64_t seq) {
  return model_flop_per_token(c, seq, Trained::all);
}

std::int64_t model_flop_per_token(const ModelConfig& c, std::int64_t seq, Trained trained) {
  std::int64_t n = active_parameter_count(c);
  if (!c.tied_head) n -= Count(c.vocab) * c.d_model;
  if (c.has_learned_positions()) n -= (Count(c.max_seq) + c.arch.position_offset) * c.d_model;
  const auto flop_of = [&](std::int64_t layer) {
    return 12 * Count(c.heads) * c.head_dim * counted_pairs(seq, c.window_of(layer), c.chunked) / seq;
  };
  Count attention = 0;
  if (c.has_unlike_layers()) {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) attention += flop_of(layer);
  } else {
    attention = Count(c.layers) * flop_of(0);
  }
  return (trained == Trained::all ? 6 : 4) * Count(n) + attention;
}

}  // namespace rooflm::model
