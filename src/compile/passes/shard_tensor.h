// Tensor parallelism: each layer's products shared by several ranks.
#pragma once

#include <string>
#include <vector>

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// Rewrites a forward program (before lower_attention) for one of `sharding.tensor` ranks (Shoeybi et al.,
/// "Megatron-LM", 2019). qkv and fc1 keep a part of the rows of each matrix that is packed into them, so that
/// a rank has whole heads; proj and fc2 keep a part of the columns, and their partial results are added up by
/// an all_reduce. Embeddings, head and loss are computed whole by every rank, but with
/// `vocab_parallel`. With `sequence_parallel` the
/// all_reduce is a reduce_scatter of rows, norms and residuals work on a rank's own rows, and an all_gather
/// comes before the next product (Korthikanti et al., 2022). Kept keys and values are those of the rank's
/// heads.
///
/// Returns the names of the weights of which each rank then knows a part of the gradient: those that work on
/// own rows. Their gradients are to be added up over the group.
std::vector<std::string> shard_tensor(program::Program& forward, const compile::Sharding& sharding,
                                      const program::Coordinates& rank);

/// Removes the ops for_each_rank, whose work the backward pass has: run after differentiate.
void drop_identities(program::Program& program);

}  // namespace rooflm::passes
