// FLOPs per token as different trainers count them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"

namespace rooflm::model {

/// FLOPs per token. N: the active parameters without input embeddings unless tied. Attention of a layer costs
/// 2 H (Dqk + Dv) for each key that a token sees, forward; its backward pass twice that.
struct FlopConvention {
  std::string_view name;
  std::string_view meaning;
  std::int64_t training = 0;  ///< forward, and backward for activations and weights
  std::int64_t forward = 0;
  /// Weights are frozen (LoRA): backward for activations alone. Adapters add 6 per parameter of theirs.
  std::int64_t frozen = 0;
};

/// 6n: without attention. full: each token sees all T keys. windowed: min(T, W) keys, as torchtitan counts
/// since 2026. causal: the keys that masks leave, (W T - W (W - 1) / 2) / T. recompute: as causal, and the
/// layers forward once more in each training step. Throws core::UsageError beyond 64 bits.
std::array<FlopConvention, 5> flop_conventions(const ModelConfig& config, std::int64_t seq);

/// What a step computes gradients of.
enum class Trained : std::uint8_t { all, adapters };

/// Of a step with these adapters (compile::StepOptions::lora; "": none).
constexpr Trained trained_beside(std::string_view lora) {
  return lora.empty() ? Trained::all : Trained::adapters;
}

/// What MFU counts: model_flop_per_token of config.h, or with frozen weights (4 N + 12 L H D T), without the
/// adapters' own.
std::int64_t model_flop_per_token(const ModelConfig& config, std::int64_t seq, Trained trained);

/// As it stands in front of MFU's formula.
constexpr std::string_view model_flop_formula(Trained trained) {
  return trained == Trained::all ? "(6N + 12LCT)" : "(4N + 12LCT)";
}

/// Parameters by block, layers added up ("h.*/attention/qkv"), in the order of the model.
std::vector<std::pair<std::string, std::int64_t>> parameters_by_block(const ModelConfig& config);

}  // namespace rooflm::model
