// Optimizers that see a weight as a matrix: Muon and Shampoo, as matmuls and a few elementwise ops.
#pragma once

#include <vector>

#include "compile/passes/optimizer.h"
#include "program/builder.h"

namespace rooflm::passes {

/// A weight [r, c], or E matrices [E, r, c], and its gradient.
struct WeightGradient {
  program::TensorId weight = program::kNone, gradient = program::kNone;
};

/// For each tensor, whether matmuls of the layers read it as a weight, maybe gathered: the matrices that such
/// optimizers update. Embeddings, the head, norms and biases are left to AdamW.
std::vector<bool> layer_matrices(const program::Program& program);

/// Appends the update of weights of one shape, which are computed together: matmuls have a batch.
///
/// muon (Jordan et al., "Muon", 2024): d = momentum(g) with Nesterov's step, x = d / |d|, five times
///   A = x x^T,  x = (a I + b A + c A^2) x,  (a, b, c) = (3.4445, -4.775, 2.0315)
/// with A = x^T x where c < r. x is then nearly orthogonal: its singular values are about 1. Where one
/// side is more than one and a half times the other, there are two rounds of three and two iterations. Within
/// a round A becomes P A P, P being the polynomial in brackets, and x is multiplied once, by the product of
/// the P. That is the same in exact arithmetic, with fewer FLOPs.
///   p -= lr (0.2 sqrt(max(r, c)) x + weight_decay p)
/// The factor gives x the root mean square of AdamW's updates (Liu et al., "Muon is scalable for LLM
/// training", 2025), so one learning rate serves both.
///
/// shampoo (Gupta et al., "Shampoo", 2018): L = beta2 L + (1 - beta2) g g^T, R likewise of g^T g, d =
/// momentum(g) with beta1,
///   x = L^-1/4 d R^-1/4,  p -= lr (0.2 sqrt(r c) x / |x| + weight_decay p)
/// Inverse roots of (L / |L| + 1e-6 I) come from a coupled Newton iteration (Anil et al., "Scalable second
/// order optimization for deep learning", 2020): M = 2.5 L, X = I, 20 times T = (5 I - M) / 4, X = X T,
/// M = T^4 M, in fp32. Every step computes them anew.
void append_matrix_updates(program::Builder& builder, const std::vector<WeightGradient>& weights,
                           program::TensorId hyper, program::TensorId norm, const OptimizerOptions& options);

/// FLOPs of the matmuls in the update of one weight.
double matrix_update_flop(const core::Shape& weight, const OptimizerOptions& options);

}  // namespace rooflm::passes
