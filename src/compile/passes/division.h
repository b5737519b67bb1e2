// Which weights data-parallel ranks divide (ZeRO), and what a rank has of them.
#pragma once

#include <vector>

#include "compile/passes/optimizer.h"
#include "compile/sharding.h"
#include "program/groups.h"
#include "program/program.h"

namespace rooflm::passes {

/// ZeRO (Rajbhandari et al., 2020) cuts each weight of two or more dimensions into one range of elements for
/// each rank (program::part_of, kPartUnit). An optimizer of matrices needs whole ones: each matrix that it
/// updates is of one rank, which has the master, the sum of the gradients and the state, and computes the
/// update; the other ranks get the result (as Moonlight's and NVIDIA's layer-wise Muon).
class Division {
 public:
  /// `step` has a forward pass whose ops read the weights themselves.
  Division(const program::Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
           const OptimizerOptions& optimizer);

  /// The ranks that have the same of a weight, and may divide it.
  [[nodiscard]] static program::Group sharers_of(const program::Tensor& weight);
  [[nodiscard]] bool divides(const program::Tensor& weight) const;
  /// What the rank has of `whole`, which is `weight` or its gradient.
  [[nodiscard]] program::Tensor part_of(program::TensorId weight, const program::Tensor& whole) const;

 private:
  compile::Sharding sharding_;
  program::Coordinates rank_;
  std::vector<int> owners_;  ///< by weight
};

/// The rank, of so many, that owns each matrix which the optimizer updates, by tensor; Cut::kNobody for all
/// other tensors. Matrices go to ranks by falling FLOPs of their updates, each to the rank that has fewest so
/// far (Graham, 1969). Ranks are numbered by falling FLOPs, so that the first needs most.
std::vector<int> matrix_owners(const program::Program& step, const OptimizerOptions& optimizer, int ranks);

}  // namespace rooflm::passes
