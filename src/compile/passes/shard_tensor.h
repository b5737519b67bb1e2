// Tensor parallelism: several ranks share each layer's matmuls.
#pragma once

#include <string>
#include <vector>

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// Rewrites a forward program (before lower_attention) for one of `sharding.tensor` ranks (Shoeybi et al.,
/// "Megatron-LM", 2019). qkv and fc1 are split by rows, separately for each matrix packed into them, so a
/// rank has whole heads. proj and fc2 are split by columns, and an all_reduce sums their partial results.
/// Every rank computes embeddings, head and loss in full, unless `vocab_parallel`. With `sequence_parallel`
/// the all_reduce is a reduce_scatter of rows, norms and residuals work on a rank's own rows, and an
/// all_gather precedes the next matmul (Korthikanti et al., 2022). Key/value caches hold the rank's heads.
///
/// Returns the names of the weights that work on a rank's own rows: each rank knows only a part of their
/// gradient, so the gradients must be summed over the group.
std::vector<std::string> shard_tensor(program::Program& forward, const compile::Sharding& sharding,
                                      const program::Coordinates& rank);

/// Removes the ops for_each_rank, which matter only to the backward pass. Run after differentiate.
void drop_identities(program::Program& program);

}  // namespace rooflm::passes
