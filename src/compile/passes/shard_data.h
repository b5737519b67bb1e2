// Data parallelism: gradients are summed over ranks, and state may be split over them (ZeRO).
#pragma once

#include <string>
#include <vector>

#include "compile/passes/optimizer.h"
#include "compile/sharding.h"
#include "program/gradient.h"
#include "program/program.h"

namespace rooflm::passes {

/// Weights for which a rank knows only a part of the gradient, by name.
struct SharedWeights {
  /// Work on a rank's own rows: to be summed over the tensor-parallel ranks.
  std::vector<std::string> summed;
  std::vector<std::string> tied;  ///< shared by the first and the last pipeline stage
};

/// Rewrites a differentiated step for one rank (after recompute, before append_optimizer).
///
/// As soon as a layer's gradients are final, one all_reduce sums them over the data-parallel ranks, once for
/// all micro-batches. With zero >= 1 matrices and embeddings are divided (passes/division.h): a rank has its
/// own part of weights and gradients, gradients come from a reduce_scatter, and an all_gather assembles a
/// layer's weights, one layer before they are used. zero
/// 1: the weights are gathered once per step. 2: gradients are reduced for each micro-batch, so no rank keeps
/// whole ones. 3: weights are gathered for each use and not kept in between. The result "loss" becomes the
/// mean over all ranks. `gradients` is updated to the rank's parts.
void shard_data(program::Program& step, program::GradientMap& gradients, const compile::Sharding& sharding,
                const program::Coordinates& rank, const SharedWeights& shared,
                const OptimizerOptions& optimizer);

/// The same for a forward pass alone: weights that are split over ranks are gathered, and the result "loss"
/// becomes the mean over all ranks.
void shard_inference(program::Program& step, const compile::Sharding& sharding,
                     const program::Coordinates& rank, const OptimizerOptions& optimizer);

/// The global norm of gradients that are split over ranks: each rank sums its squares, counting what several
/// ranks have once, and the sums are added over all ranks. Rewrites the op global_norm of a finished step.
void sum_norm(program::Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
              const SharedWeights& shared);

}  // namespace rooflm::passes
