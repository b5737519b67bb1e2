// The size and kind of a transformer: presets, overrides, parameter counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::model {

/// gpt2: LayerNorm, learned positions, tanh-GELU, biases, tied head. llama: RMSNorm, RoPE, SwiGLU, no biases,
/// grouped-query attention, untied head unless said.
enum class Arch : std::uint8_t { gpt2, llama };
std::string_view name_of(Arch arch);
/// Throws core::UsageError with a suggestion.
Arch parse_arch(std::string_view name);

/// Everything that fixes a model's shape. Dimension letters as in docs/design.md.
struct ModelConfig {
  std::string name;  ///< preset, or the name of a directory
  Arch arch = Arch::gpt2;
  std::int64_t layers = 0;        ///< L
  std::int64_t heads = 0;         ///< H
  std::int64_t kv_heads = 0;      ///< K; equals heads without grouped-query attention
  std::int64_t d_model = 0;       ///< C
  std::int64_t d_ff = 0;          ///< F
  std::int64_t head_dim = 0;      ///< D; C / H unless said
  std::int64_t vocab = 0;         ///< tokens that exist
  std::int64_t padded_vocab = 0;  ///< V: rows of the embedding, a multiple that matrix units like; >= vocab
  std::int64_t max_seq = 0;       ///< longest sequence (rows of the position embedding); 0: any (llama)
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tied_head = false;
  /// Of a model that is planned and not computed: what its program has not (read_planned_config).
  std::string left_out{};
};

/// Names of the presets, by kind and then by size.
const std::vector<std::string>& preset_names();
/// Throws core::UsageError with a suggestion for an unknown name.
ModelConfig preset(std::string_view name);

/// What the command line can change. Sizes left out keep their value; a changed d_model or heads keeps D = C
/// / H.
struct Overrides {
  std::optional<Arch> arch{};
  std::optional<std::int64_t> layers{}, heads{}, kv_heads{}, d_model{}, d_ff{}, vocab{};
  /// Longest sequence to be used: a llama size turned into gpt2 by `arch` gets max(1024, seq) positions.
  std::optional<std::int64_t> seq{};
};
/// Applies them and validates. Throws core::UsageError ("--heads 25 does not divide --d-model 1601").
ModelConfig with_overrides(ModelConfig config, const Overrides& overrides);
/// Throws core::UsageError naming the values when sizes are not positive or do not divide.
void validate(const ModelConfig& config);

/// N: all parameters, tied ones once, padding rows of the vocabulary included.
std::int64_t parameter_count(const ModelConfig& config);
/// Parameters that take part in matrix products: weights of the linear layers and the head.
std::int64_t matmul_parameter_count(const ModelConfig& config);
/// Model FLOPs of one training step per token, (6 N_mfu + 12 L H D T): PaLM, appendix B, with N_mfu the
/// parameters without input embeddings unless tied (positions are input embeddings).
std::int64_t model_flop_per_token(const ModelConfig& config, std::int64_t seq);

}  // namespace rooflm::model
