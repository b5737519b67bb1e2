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

/// Feed-forward layers of which each token takes some (Shazeer et al., 2017; Mixtral: Jiang et al., 2024).
struct Experts {
  std::int64_t count = 0;        ///< E; 0: none, all layers are dense
  std::int64_t active = 0;       ///< of each token
  std::int64_t d_ff = 0;         ///< width of one
  std::int64_t shared_d_ff = 0;  ///< width of those that all tokens take, together; 0: none
  bool sigmoid = false;          ///< scores are sigmoids of the logits, not their softmax
  bool normalised = true;        ///< weights of the chosen add up to `scale`
  double scale = 1;
  double balance_loss = 0, z_loss = 0;  ///< coefficients of losses (program/ops/experts.cpp)
  std::vector<bool> in_layer{};         ///< by layer, repeated; empty: all layers have them
  [[nodiscard]] bool are_in(std::int64_t layer) const {
    return count > 0 && (in_layer.empty() || in_layer[static_cast<std::size_t>(layer) % in_layer.size()]);
  }
};

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
  // What models of the llama kind may have besides. gpt2 has all biases.
  bool qkv_bias = false, proj_bias = false, mlp_bias = false;
  bool qk_norm = false;          ///< RMSNorm of each head's queries and keys, weights [D] of each
  std::string rope_scaling{};    ///< "llama3", "yarn", ..; empty: positions are not scaled
  std::int64_t window = 0;       ///< keys that a query sees, its own included; 0: all before it
  std::vector<bool> windowed{};  ///< by layer, repeated; empty: all layers have the window
  Experts experts{};
  std::string left_out{};  ///< what programs leave out, in words: scalars that cost nothing

  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    const bool is_whole = !windowed.empty() && !windowed[static_cast<std::size_t>(layer) % windowed.size()];
    return is_whole ? 0 : window;
  }
  /// Whether layers differ in attention or in experts.
  [[nodiscard]] bool has_unlike_layers() const;
};

/// What of the model no kernel computes yet for texts of `seq` tokens, in words; empty: it can run.
std::string uncomputed(const ModelConfig& config, std::int64_t seq);

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

/// N: the number of parameters, tied ones once, without the padding of the vocabulary.
std::int64_t parameter_count(const ModelConfig& config);
/// The parameters that one token uses: of experts, those it takes.
std::int64_t active_parameter_count(const ModelConfig& config);
/// Elements of weights that are padding: rows of the embedding, and of the head, beyond the vocabulary.
std::int64_t padding_count(const ModelConfig& config);
/// Parameters of matmuls: the weights of the linear layers, of all experts, and the head, padding included.
std::int64_t matmul_parameter_count(const ModelConfig& config);
/// Model FLOPs of one training step per token, (6 N_mfu + 12 L H D T): PaLM, appendix B, with N_mfu the
/// active parameters without input embeddings unless tied (positions are input embeddings). A layer with a
/// window of W < T has the share of the pairs that it sees, 2 W / T - (W / T)^2.
std::int64_t model_flop_per_token(const ModelConfig& config, std::int64_t seq);
/// Twice the pairs of queries and keys that attention to at most `window` keys computes in `seq` tokens, T^2
/// without a window (0): causal attention counts in full.
std::int64_t counted_pairs(std::int64_t seq, std::int64_t window);

}  // namespace rooflm::model
