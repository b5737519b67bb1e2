// Data parallelism: gradients of all ranks added up, and what they need not all keep.
#pragma once

#include <string>
#include <vector>

#include "compile/sharding.h"
#include "program/gradient.h"
#include "program/program.h"

namespace rooflm::passes {

/// Weights of which a rank knows only a part of the gradient, by name.
struct SharedWeights {
  std::vector<std::string> summed;  ///< of own rows: to be added up over the tensor-parallel ranks
  std::vector<std::string> tied;    ///< the first and the last stage of a pipeline have it, too
};

/// Rewrites a differentiated step for one rank (after recompute, before append_optimizer).
///
/// Gradients: as soon as a layer's are final, one all_reduce over the data-parallel ranks adds them up, once
/// for all micro-batches. With zero >= 1 (Rajbhandari et al., "ZeRO", 2020) matrices and embeddings become
/// parts (program::part_of, kPartUnit): weights and what `gradients` has of them are a rank's own, gradients
/// come from a reduce_scatter, and an all_gather puts a layer's weights together, one layer before they are
/// used. zero 1: once in a step. 2: gradients are reduced for each micro-batch, so that no rank keeps whole
/// ones. 3: weights are gathered for each use and not kept in between. The result "loss" becomes the mean
/// over all ranks.
void shard_data(program::Program& step, program::GradientMap& gradients, const compile::Sharding& sharding,
                const program::Coordinates& rank, const SharedWeights& shared);

/// Rewrites a forward pass alone in the same way: weights of which ranks have parts are put together, and the
/// result "loss" becomes the mean over all ranks.
void shard_inference(program::Program& step, const compile::Sharding& sharding,
                     const program::Coordinates& rank);

/// The global norm of gradients of which ranks have parts: each rank's squares, where what several ranks have
/// is counted once, added up over all of them. Rewrites the op global_norm of a finished step.
void sum_norm(program::Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
              const SharedWeights& shared);

}  // namespace rooflm::passes
