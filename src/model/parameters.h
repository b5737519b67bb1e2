// The parameters of a model: names, shapes, initialisation, weight decay.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"
#include "model/config.h"

namespace rooflm::model {

/// One parameter. Linear weights are [out, in]; `qkv` packs the rows of q (H D), k (K D) and v (K D); llama's
/// `fc1` packs gate [F, C] over up [F, C].
struct Parameter {
  std::string name;
  core::Shape shape;
  enum class Init : std::uint8_t { zeros, ones, normal } init = Init::normal;
  double std = 0.02;   ///< standard deviation of the normal initialisation
  bool decay = false;  ///< weight decay applies: matrices and embeddings, not norms and biases
};

/// All parameters in the order of the model, tied ones once. Names:
/// wte [V, C], wpe [max_seq, C] (gpt2), per layer h.N: ln1.weight, ln1.bias, attention.qkv.weight [(H+2K) D,
/// C], attention.qkv.bias, attention.proj.weight [C, H D], attention.proj.bias, ln2.weight, ln2.bias,
/// feed_forward.fc1.weight [F or 2F, C], feed_forward.fc1.bias, feed_forward.fc2.weight [C, F],
/// feed_forward.fc2.bias; then ln_f.weight, ln_f.bias, lm_head.weight [V, C] (untied). llama has the biases
/// that its configuration says, and may have attention.q_norm.weight and attention.k_norm.weight [D]. A layer
/// of E experts of width F has feed_forward.router.weight [E, C], feed_forward.experts.fc1.weight [E, 2F, C],
/// feed_forward.experts.fc2.weight [E, C, F], and feed_forward.shared.fc1 and fc2 of those that all tokens
/// take. Norms on results are ln1_after and ln2_after. Attention without latent rank has q_norm and k_norm
/// where its configuration says; with one it has q_a, q_b, kv_a, k_rotary and kv_b instead of qkv. The code
/// is the list. Initialisation: GPT-2 (Radford et al., 2019; residual projections scaled by 1/sqrt(2L)) and
/// Llama's N(0, 0.02).
std::vector<Parameter> parameters(const ModelConfig& config);

/// Whether a parameter is a matrix of a layer that weights in fewer bits are made of: no norm, and no router,
/// whose choices are few numbers that decide much.
bool is_layer_matrix(const std::string& name, const core::Shape& shape);

/// Initial values of one parameter. Element i depends only on seed, the parameter's name and i. Padding rows
/// of the vocabulary are zero.
std::vector<float> initial_values(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed);
/// The same, of elements `first` to `first + out.size()` alone.
void initial_values(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed,
                    std::int64_t first, std::span<float> out);

}  // namespace rooflm::model
