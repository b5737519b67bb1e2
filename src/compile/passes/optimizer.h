// Appends the optimizer step to a program.
#pragma once

#include <string_view>

#include "core/named.h"
#include "program/gradient.h"
#include "program/program.h"

namespace rooflm::passes {

using core::name_of;

/// muon and shampoo: of the matrices of layers (passes/matrix_optimizer.h); adamw of all else.
enum class OptimizerKind : std::uint8_t { adamw, sgd, lion, muon, shampoo };
constexpr auto names_of(OptimizerKind) {
  return core::named<OptimizerKind>("optimizer", {{OptimizerKind::adamw, "adamw"},
                                                  {OptimizerKind::sgd, "sgd"},
                                                  {OptimizerKind::lion, "lion"},
                                                  {OptimizerKind::muon, "muon"},
                                                  {OptimizerKind::shampoo, "shampoo"}});
}
/// Whether it needs whole matrices.
constexpr bool is_of_matrices(OptimizerKind kind) {
  return kind == OptimizerKind::muon || kind == OptimizerKind::shampoo;
}

/// How AdamW's moments are stored: bf16 rounds to nearest or up and down at random
/// (program/ops/optimizer.cpp), 8bit is block-wise (core/dynamic_8bit.h).
enum class StateKind : std::uint8_t { fp32, bf16, eight_bit };
constexpr auto names_of(StateKind) {
  return core::named<StateKind>(
      "kind of states",
      {{StateKind::fp32, "fp32"}, {StateKind::bf16, "bf16"}, {StateKind::eight_bit, "8bit"}});
}

/// Constants of the update; the learning rate is a run-time input. Formulas: program/ops/optimizer.cpp.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  StateKind states = StateKind::fp32;  ///< of AdamW
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.95;       ///< of Muon
  double weight_decay = 0.1;    ///< only for tensors of two or more dimensions: not for norms and biases
  double expert_bias_rate = 0;  ///< of choice biases of experts, which no gradient trains; 0: they stay
  double clip_norm = 1.0;       ///< limit of the global gradient norm; 0: no clipping, no norm computed
};

/// Appends global_norm (result "grad_norm" [1]) if gradients are clipped, and one update op per parameter.
/// Adds the input "hyper" [4] fp32 (program/ops/optimizer.cpp) and the states "m.NAME" and "v.NAME".
/// Optimizers of matrices have more ops, and states; they need whole matrices. `groups`: those of one shape
/// are updated together.
void append_optimizer(program::Program& program, const program::GradientMap& gradients,
                      const OptimizerOptions& options, bool groups);

/// Appends a balance_bias op for each bias of experts. Throws core::UsageError if there is none.
void balance_biases(program::Program& program, double rate);

}  // namespace rooflm::passes
