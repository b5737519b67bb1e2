// The size and kind of a transformer: presets, overrides, parameter counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::model {

/// gpt2: LayerNorm, learned positions, tanh-GELU, biases, tied head. llama: RMSNorm, RoPE, SwiGLU, no biases,
/// grouped-query attention, untied head by default.
enum class Arch : std::uint8_t { gpt2, llama };
std::string_view name_of(Arch arch);
/// Throws core::UsageError with a suggestion.
Arch parse_arch(std::string_view name);

/// Everything that determines a model's shapes. Dimension letters as in docs/design.md.
struct ModelConfig {
  std::string name;  ///< preset, or the name of a directory
  Arch arch = Arch::gpt2;
  std::int64_t layers = 0;    ///< L
  std::int64_t heads = 0;     ///< H
  std::int64_t kv_heads = 0;  ///< K; equals heads without grouped-query attention
  std::int64_t d_model = 0;   ///< C
  std::int64_t d_ff = 0;      ///< F
  std::int64_t head_dim = 0;  ///< D; C / H by default
  std::int64_t vocab = 0;     ///< number of tokens
  /// V: rows of the embedding, padded to a multiple that suits tensor cores; >= vocab
  std::int64_t padded_vocab = 0;
  std::int64_t max_seq = 0;  ///< longest sequence (rows of the position embedding); 0: any (llama)
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tied_head = false;
  /// For a model that is planned but not run: what its program leaves out (read_planned_config).
  std::string left_out{};
};

/// Names of the presets, by kind and then by size.
const std::vector<std::string>& preset_names();
/// Throws core::UsageError with a suggestion for an unknown name.
ModelConfig preset(std::string_view name);

/// Options of the command line that change a model. Absent ones keep its values; a changed d_model or heads
/// sets D = C / H, unless head_dim says otherwise.
struct Overrides {
  std::optional<Arch> arch{};
  std::optional<std::int64_t> layers{}, heads{}, kv_heads{}, d_model{}, d_ff{}, vocab{};
  std::optional<std::int64_t> head_dim{};   ///< instead of C / H
  std::optional<std::int64_t> positions{};  ///< instead of max_seq
  /// Longest sequence that will be used: a llama preset turned into gpt2 by `arch` gets max(1024, seq)
  /// positions.
  std::optional<std::int64_t> seq{};
};
/// Applies the overrides and validates. Throws core::UsageError ("--heads 25 does not divide --d-model
/// 1601").
ModelConfig with_overrides(ModelConfig config, const Overrides& overrides);
/// Throws core::UsageError naming the values when sizes are not positive or do not divide.
void validate(const ModelConfig& config);

/// N: the number of parameters, tied ones once, vocabulary padding included.
std::int64_t parameter_count(const ModelConfig& config);
/// Parameters of matmuls: the weights of the linear layers and the head.
std::int64_t matmul_parameter_count(const ModelConfig& config);
/// Model FLOPs of one training step per token, (6 N_mfu + 12 L H D T): PaLM, appendix B, with N_mfu the
/// parameters without input embeddings unless tied (positions are input embeddings).
std::int64_t model_flop_per_token(const ModelConfig& config, std::int64_t seq);

}  // namespace rooflm::model
