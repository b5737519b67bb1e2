// How rooflm's parameters map to the tensors of Hugging Face files.
#include "model/huggingface_layout.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "core/error.h"

namespace rooflm::model {
namespace {

using core::Shape;

/// A module's names in rooflm and in transformers; a layer's follow "h.N." and "transformer.h.N." or
/// "model.layers.N.".
struct Module {
  std::string_view ours, theirs;
};

constexpr std::array kGpt2Modules = {
    Module{"wte", "wte.weight"},
    Module{"wpe", "wpe.weight"},
    Module{"ln1", "ln_1"},
    Module{"attention.qkv", "attn.c_attn"},
    Module{"attention.proj", "attn.c_proj"},
    Module{"ln2", "ln_2"},
    Module{"feed_forward.fc1", "mlp.c_fc"},
    Module{"feed_forward.fc2", "mlp.c_proj"},
    Module{"ln_f", "ln_f"},
};
constexpr std::array kLlamaModules = {
    Module{"wte", "embed_tokens.weight"},         Module{"ln1", "input_layernorm"},
    Module{"attention.proj", "self_attn.o_proj"}, Module{"ln2", "post_attention_layernorm"},
    Module{"feed_forward.fc2", "mlp.down_proj"},  Module{"ln_f", "norm"},
};

/// What a layer calls the router and the weights of one expert.
struct ExpertModules {
  std::string_view router, experts, gate, up, down;
};
/// Of models with norms of queries and keys, Qwen3-MoE's; else Mixtral's.
constexpr ExpertModules kMixtralExperts{"block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3",
                                        "w2"};
constexpr ExpertModules kQwenExperts{"mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj"};

std::string_view theirs(std::string_view ours, const Arch& arch) {
  const auto find = [&](const auto& modules) -> std::string_view {
    for (const Module& module : modules) {
      if (module.ours == ours) return module.theirs;
    }
    throw std::logic_error(fmt::format("no Hugging Face name for the parameter {}", ours));
  };
  return arch == Arch::gpt2 ? find(kGpt2Modules) : find(kLlamaModules);
}

/// "h.3.ln1.weight", parsed: the layer's prefix in the file, the module "ln1", the suffix ".weight".
struct Name {
  std::string prefix, module, suffix;
};

Name split(const std::string& name, const Arch& arch) {
  Name parts{arch == Arch::gpt2 ? "transformer." : "model.", name, ""};
  if (name.starts_with("h.")) {
    const auto dot = name.find('.', 2);
    parts.prefix += (arch == Arch::gpt2 ? "h." : "layers.") + name.substr(2, dot - 1);
    parts.module = name.substr(dot + 1);
  }
  for (const std::string suffix : {".weight", ".bias"}) {
    if (!parts.module.ends_with(suffix)) continue;
    parts.module.resize(parts.module.size() - suffix.size());
    parts.suffix = suffix;
  }
  return parts;
}

/// Tensors whose rows follow each other in one parameter.
struct Stack {
  std::vector<Part> parts;
  std::int64_t next_row = 0;

  void add(const std::string& tensor, std::int64_t rows, const Shape& whole) {
    parts.push_back({.tensor = tensor,
                     .shape = whole.rank() == 1 ? Shape{rows} : Shape{rows, whole[1]},
                     .first_row = next_row});
    next_row += rows;
  }
};

/// The tensors of a router [E, C], of fc1 [E, 2F, C] or of fc2 [E, C, F].
std::vector<Part> expert_parts(const std::string& prefix, std::string_view module, const ModelConfig& c) {
  const ExpertModules& names = c.qk_norm != QkNorm::none ? kQwenExperts : kMixtralExperts;
  const Experts& e = c.experts;
  if (module == "feed_forward.router")
    return {{.tensor = fmt::format("{}{}.weight", prefix, names.router), .shape = {e.count, c.d_model}}};
  const bool is_down = module == "feed_forward.experts.fc2";
  Stack stack;
  for (std::int64_t i = 0; i < e.count; ++i) {
    const auto add = [&](std::string_view name) {
      stack.add(fmt::format("{}{}.{}.{}.weight", prefix, names.experts, i, name),
                is_down ? c.d_model : e.d_ff, is_down ? Shape{c.d_model, e.d_ff} : Shape{e.d_ff, c.d_model});
    };
    if (is_down) {
      add(names.down);
    } else {
      add(names.gate);
      add(names.up);
    }
  }
  return stack.parts;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  for (const std::string_view end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

std::vector<Part> parts_of(const Parameter& parameter, const ModelConfig& c) {
  if (c.arch != Arch::gpt2 && c.arch != Arch::llama) {
    throw core::Unavailable(
        fmt::format("{}: the tensors in files of {} are not mapped yet", c.name, c.arch.name));
  }
  if (parameter.name == "lm_head.weight")
    return {{.tensor = "lm_head.weight", .shape = {c.vocab, c.d_model}}};
  const Name name = split(parameter.name, c.arch);
  // Of a bias [out] as of a weight [out, in].
  const auto stacked = [&](std::initializer_list<std::pair<const char*, std::int64_t>> modules) {
    Stack stack;
    for (const auto& [module, rows] : modules)
      stack.add(name.prefix + module + name.suffix, rows, parameter.shape);
    return stack.parts;
  };
  if (c.arch == Arch::llama && name.module == "attention.qkv") {
    return stacked({{"self_attn.q_proj", c.heads * c.head_dim},
                    {"self_attn.k_proj", c.kv_heads * c.head_dim},
                    {"self_attn.v_proj", c.kv_heads * c.head_dim}});
  }
  if (c.arch == Arch::llama && name.module == "feed_forward.fc1")
    return stacked({{"mlp.gate_proj", c.d_ff}, {"mlp.up_proj", c.d_ff}});
  if (name.module == "feed_forward.router" || name.module.starts_with("feed_forward.experts."))
    return expert_parts(name.prefix, name.module, c);
  Part part{.tensor = name.prefix + std::string(theirs(name.module, c.arch)) + name.suffix,
            .shape = parameter.shape};
  if (parameter.name == "wte") part.shape = {c.vocab, c.d_model};
  const bool is_linear = !name.suffix.empty() && parameter.shape.rank() == 2;
  if (c.arch == Arch::gpt2 && is_linear) {
    part.shape = {parameter.shape[1], parameter.shape[0]};
    part.transposed = true;
  }
  return {part};
}

std::string weight_name(std::string_view stored_name, const ModelConfig& config) {
  if (stored_name.starts_with("lm_head.")) return config.tied_head ? "" : std::string(stored_name);
  if (config.arch == Arch::gpt2 && ends_with_any(stored_name, {".attn.bias", ".attn.masked_bias"})) return "";
  if (config.arch == Arch::llama && ends_with_any(stored_name, {".rotary_emb.inv_freq"})) return "";
  const std::string prefix = config.arch == Arch::gpt2 ? "transformer." : "model.";
  return stored_name.starts_with(prefix) ? std::string(stored_name) : prefix + std::string(stored_name);
}

}  // namespace rooflm::model
