// The size and kind of a transformer: presets, overrides, parameter counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/named.h"
#include "core/options.h"
#include "program/activation.h"

namespace rooflm::model {

enum class Norm : std::uint8_t { layer, rms };
/// Where a block of attention or of a feed-forward layer has its norm: before it, on its result, or both.
enum class NormPlace : std::uint8_t { before, after, both };
enum class Positions : std::uint8_t { none, learned, rotary, alibi };
/// serial: x += attention(norm(x)); x += feed_forward(norm(x)). parallel: both read x (GPT-NeoX);
/// parallel_one_norm: through one norm (GPT-J).
enum class Residual : std::uint8_t { serial, parallel, parallel_one_norm };
using program::Activation;
/// Norms of queries and keys, of the kind of `norm`: head: weights [D] that heads share; heads: [H, D];
/// whole: over all heads, [H D]; unweighted: of each head that is rotated, without weights.
enum class QkNorm : std::uint8_t { none, head, heads, whole, unweighted };

/// What the layers of a model are made of. Kinds alone; the numbers are ModelConfig's.
struct Arch {
  std::string_view name;  ///< "gpt2", "llama" or the model_type of a family; of static storage
  Norm norm = Norm::rms;
  bool norm_weight = true, norm_bias = false;
  bool norm_offset = false;  ///< files hold the weights of norms less 1 (Gemma)
  NormPlace norm_place = NormPlace::before;
  bool embedding_norm = false;  ///< of the embeddings (BLOOM)
  Positions positions = Positions::rotary;
  std::int64_t position_offset = 0;  ///< rows of the position embedding before that of the first token (OPT)
  Residual residual = Residual::serial;
  bool gated = true;  ///< feed-forward: activation(gate) * up
  Activation activation = Activation::silu;
  bool biases = false;  ///< of all linear layers
  bool operator==(const Arch&) const = default;

  /// LayerNorm, learned positions, tanh-GELU, biases; tied head by default.
  static const Arch gpt2;  // NOLINT(readability-identifier-naming): as enumerators
  /// RMSNorm, rotary positions, SwiGLU, no biases, grouped-query attention; untied head by default.
  static const Arch llama;  // NOLINT(readability-identifier-naming)
};
inline constexpr Arch Arch::gpt2{.name = "gpt2",
                                 .norm = Norm::layer,
                                 .norm_bias = true,
                                 .positions = Positions::learned,
                                 .gated = false,
                                 .activation = Activation::gelu_tanh,
                                 .biases = true};
inline constexpr Arch Arch::llama{.name = "llama"};

using core::name_of;
/// Of any family.
constexpr std::string_view name_of(const Arch& arch) { return arch.name; }
/// Those that may be asked for.
constexpr auto names_of(const Arch& /*any*/) {
  return core::named<Arch>("architecture", {{Arch::gpt2, "gpt2"}, {Arch::llama, "llama"}});
}

/// Feed-forward layers of which each token takes some (Shazeer et al., 2017; Mixtral: Jiang et al., 2024).
struct Experts {
  std::int64_t count = 0;        ///< E; 0: none, all layers are dense
  std::int64_t active = 0;       ///< of each token
  std::int64_t d_ff = 0;         ///< width of one
  std::int64_t shared_d_ff = 0;  ///< width of those that all tokens take, together; 0: none
  std::vector<bool> in_layer{};  ///< by layer, repeated; empty: all layers have them
  bool weigh_input = false;      ///< weights scale what experts read, not what they make (Llama 4)
  bool shared_gate = false;      ///< the shared ones are weighted, by a matmul with [1, C]
  bool router_bias = false, biases = false;
  bool sigmoid_scores = false;  ///< instead of softmax
  bool normalised = true;       ///< the weights of a token's experts add up to `scale`
  double scale = 1;
  bool score_bias = false;  ///< added to scores when experts are chosen, balances without a loss
  std::int64_t groups = 1, active_groups = 1;  ///< experts are chosen from so many of the groups,
  std::int64_t group_best = 1;                 ///< ranked by the sum of so many of their highest scores
  double jitter = -1;                          ///< of a sparse mixer (program/ops/experts.cpp); below 0: none
  bool has_own_norms = false;                  ///< beside the shared ones, and scales of the router (Gemma 4)
  double balance_loss = 0, z_loss = 0;         ///< coefficients of losses (program/ops/experts.cpp)
  [[nodiscard]] bool are_in(std::int64_t layer) const {
    return count > 0 && (in_layer.empty() || in_layer[static_cast<std::size_t>(layer) % in_layer.size()]);
  }
  bool operator==(const Experts&) const = default;
};

/// Multi-head latent attention (DeepSeek-V2, 2024): keys and values through a matmul of low rank.
struct LatentAttention {
  std::int64_t q_rank = 0;                                ///< 0: queries directly
  std::int64_t kv_rank = 0;                               ///< 0: the model has plain attention
  std::int64_t plain_dim = 0, rotary_dim = 0, v_dim = 0;  ///< of a head: of queries and keys, of values
  std::int64_t index_heads = 0, index_dim = 0;            ///< of what chooses keys (DeepSeek-V3.2); 0: all
  /// By layer, repeated: whether it chooses keys; others take those of the layer before (GLM-5.2). Empty:
  /// all.
  std::vector<bool> index_in_layer{};
  bool operator==(const LatentAttention&) const = default;
};

/// How rotary positions differ from theta^(-2i/D) for all elements of a head.
struct Rotary {
  std::int64_t dims = 0;                 ///< rotated elements of a head; 0: all
  bool interleaved = false;              ///< pairs (2i, 2i + 1) in files; programs rotate halves
  std::vector<bool> in_layer{};          ///< by layer, repeated; empty: all layers
  double factor = 1, low = 1, high = 4;  ///< llama3 (Grattafiori et al., 2024); linear has the first
  double original = 0;                   ///< positions of the first training
  double beta_fast = 32, beta_slow = 1, attention = 0;  ///< yarn (Peng et al., 2023); 0: 0.1 ln(factor) + 1
  bool truncate = true;
  [[nodiscard]] bool is_in(std::int64_t layer) const {
    return in_layer.empty() || in_layer[static_cast<std::size_t>(layer) % in_layer.size()];
  }
  bool operator==(const Rotary&) const = default;
};

/// Sizes of attention in one layer.
struct AttentionSize {
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t qk_dim = 0, v_dim = 0;  ///< of a head
  bool values_are_keys = false;        ///< one matmul makes both
  std::int64_t index_heads = 0;        ///< of what chooses keys here
};

/// Everything that determines a model's shapes. Dimension letters as in docs/design.md.
struct ModelConfig {
  std::string name;      ///< preset, or the name of a directory
  std::string family{};  ///< model_type of the file that described it; empty: none did
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
  // What an architecture without biases may have besides.
  bool qkv_bias = false, proj_bias = false, mlp_bias = false, head_bias = false;
  QkNorm qk_norm = QkNorm::none;
  bool qk_norm_bias = false;
  bool qk_norm_rotated = false;  ///< norms of queries and keys follow their rotation
  std::string rope_scaling{};    ///< "llama3", "yarn", ..; empty: positions are not scaled
  Rotary rotary{};
  std::int64_t window = 0;  ///< keys that a query sees, its own included; 0: all before it
  bool chunked = false;     ///< windows begin at multiples of their size (Llama 4)
  double temperature = 0, temperature_floor = 1;  ///< of scores without rotary positions (program/scores.h)
  std::vector<bool> windowed{};                   ///< by layer, repeated; empty: all layers have the window
  double window_theta = 0;  ///< of layers with the window, whose positions are not scaled; 0: as others
  std::int64_t full_head_dim = 0, full_kv_heads = 0;  ///< of layers without the window; 0: as the others
  bool full_values_are_keys = false;
  bool sinks = false;       ///< a score per head that attends to nothing
  double query_scale = 0;   ///< of scores; 0: 1 / sqrt(D)
  double alibi_slopes = 1;  ///< factor of ALiBi's slopes
  double score_cap = 0;     ///< scores are cap tanh(score / cap); 0: as they are
  double logit_cap = 0;     ///< likewise
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;  ///< factors
  LatentAttention latent{};
  Experts experts{};
  std::string left_out{};     ///< what programs leave out, in words: scalars that cost nothing
  std::string other_parts{};  ///< of the file's model, which this one does not have, in words
  std::string stored_as{};    ///< by which method the file's weights are packed, if that is not read ("fp8")

  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    const bool is_whole = !windowed.empty() && !windowed[static_cast<std::size_t>(layer) % windowed.size()];
    return is_whole ? 0 : window;
  }
  [[nodiscard]] AttentionSize attention_of(std::int64_t layer) const;
  [[nodiscard]] bool has_learned_positions() const { return arch.positions == Positions::learned; }
  /// Whether layers differ in attention or in experts.
  [[nodiscard]] bool has_unlike_layers() const;
  bool operator==(const ModelConfig&) const = default;
};

/// What of the model no kernel computes yet, in words; empty: it can run.
std::string uncomputed(const ModelConfig& config);

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
template <core::MaybeConst<Overrides> T, class Visit>
void visit_options(T& sizes, const Visit& visit) {
  visit("arch", sizes.arch);
  visit("vocab", sizes.vocab);
  visit("layers", sizes.layers);
  visit("heads", sizes.heads);
  visit("kv_heads", sizes.kv_heads);
  visit("d_model", sizes.d_model);
  visit("head_dim", sizes.head_dim);
  visit("d_ff", sizes.d_ff);
  visit("positions", sizes.positions);
}
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
/// without a window (0): causal attention counts in full. `chunked`: the pairs of keys of one chunk.
std::int64_t counted_pairs(std::int64_t seq, std::int64_t window, bool chunked = false);

}  // namespace rooflm::model
