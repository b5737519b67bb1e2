// Adapters of low rank beside frozen weights (Hu et al., "LoRA", 2021).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "program/gradient.h"
#include "program/program.h"

namespace rooflm::passes {

/// What --lora says: "8", "8,alpha=16", "8,rslora,dora,targets=q,v", "8,targets=all-linear".
struct LoraOptions {
  std::int64_t rank = 0;
  double alpha = 0;                    ///< 2 rank if unsaid
  bool is_rank_stabilised = false;     ///< rsLoRA
  bool is_dora = false;                ///< magnitudes are trained beside directions
  std::vector<std::string> targets{};  ///< modules as Hugging Face files name them, "_proj" left out or not
};
/// Throws core::UsageError that quotes `text`.
LoraOptions parse_lora(std::string_view text);

/// One adapter, of a part of the columns of y = x W^T. Its weights are MODULE.lora_A.weight [rank, in] and
/// MODULE.lora_B.weight [out, rank], as PEFT names them.
/// LoRA: y += factor (x A^T) B^T; factor is alpha / rank, or alpha / sqrt(rank) (Kalajdzievski, "A rank
/// stabilization scaling factor for fine-tuning with LoRA", 2023).
/// DoRA (Liu et al., "DoRA: Weight-decomposed low-rank adaptation", 2024): the rows of W + factor B A are
/// directions, and MODULE.lora_magnitude_vector [out] says how long they are:
/// y = m / |W + factor B A| (x W^T + factor (x A^T) B^T). No gradient goes through the lengths |..| of rows.
struct Adapter {
  std::string module;                       ///< "model.layers.0.self_attn.q_proj"
  std::string weight;                       ///< the parameter of model/parameters.h that has W among its rows
  std::int64_t first = 0, out = 0, in = 0;  ///< rows [first, first + out) of the parameter
  std::int64_t rank = 0;
  double alpha = 1;
  bool is_rank_stabilised = false, is_dora = false;
  bool transposed = false;  ///< files store W as [in, out]
  [[nodiscard]] double factor() const;
  [[nodiscard]] std::string a() const { return module + ".lora_A.weight"; }
  [[nodiscard]] std::string b() const { return module + ".lora_B.weight"; }
  /// Of DoRA: m [out], and the squares of the lengths of W's rows [out], which no step changes.
  [[nodiscard]] std::string magnitude() const { return module + ".lora_magnitude_vector"; }
  [[nodiscard]] std::string row_squares() const { return module + ".lora_row_squares"; }
};

/// The matrices of layers that files have as modules of their own, in the order of the model, each as an
/// adapter of rank 0. `first` is -1 where files have the rows in another order than the parameter: it can
/// have no adapter.
std::vector<Adapter> adaptable_modules(const model::ModelConfig& config);

/// The adapters that `lora` asks for, in the order of the model; none for "". Targets are q and v where the
/// family's files have them apart, else what has them. Throws core::UsageError for a rank beyond a matrix's
/// width and for targets that the model does not have, core::Unavailable for parts of a matrix whose rows
/// files have in another order.
std::vector<Adapter> find_adapters(const model::ModelConfig& config, std::string_view lora);

/// Adds the adapters to a forward pass. `is_packed`: matrices will be packed, so matmuls read whole ones.
void add_adapters(program::Program& forward, const std::vector<Adapter>& adapters, bool is_packed);

/// Whether a weight of that name is an adapter's.
bool is_adapter(std::string_view weight);

/// Of a differentiated step whose weights but the adapters' are frozen: removes what computes gradients that
/// nobody needs. `gradients` has then those of the adapters.
void freeze(program::Program& step, program::GradientMap& gradients);

}  // namespace rooflm::passes
