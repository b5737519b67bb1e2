// Context parallelism: attention over sequences whose parts are on several ranks.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

// What the pass writes. No backend has kernels of them yet, so they are no part of ops::all();
// tests/engines/part_kernels.h has them for the proof on the CPU.
// Shapes: B sequences, T tokens of this rank, H query heads, K key/value heads, D channels of each.
/// keys_values [B, T, 2 K D] = those of qkv [B, T, (H + 2K) D].
extern const program::OpDef kTakeKeysValues;
/// Attention of the rank's queries to the keys and values of the rank `from` of `parts`: qkv, keys_values ->
/// y [B, T, H D], lse [B, H, T]; -inf and 0 where a query sees none of them. Half of the scores are below the
/// diagonal, whosever they are.
extern const program::OpDef kAttentionBlock;
/// y, lse of all blocks so far and of one more, joined in place by their lse.
extern const program::OpDef kJoinBlocks;
/// dy, qkv, keys_values, y, lse -> dq [B, T, H D], added to; d keys_values, added to.
extern const program::OpDef kAttentionBlockBackward;
/// dqkv [B, T, (H + 2K) D] = dq and d keys_values side by side.
extern const program::OpDef kJoinGradients;
/// A collective: what the neighbour in the ring has, while the other neighbour gets one's own.
extern const program::OpDef kPassOn;

/// Rewrites the flash attention of a finished step of one of `sharding.context` ranks, before
/// overlap_collectives: keys and values go around the ring in context - 1 steps, each while attention to
/// those that are there is computed; in the backward pass their gradients follow, in context steps, until
/// they are home again (Liu et al., "Ring Attention", 2023). Each rank has two pieces of a sequence, as far
/// from its beginning as from its end, so that all ranks have as much to do (zigzag). Does nothing for one
/// rank. Throws core::UsageError for attention that is no flash attention.
void ring_attention(program::Program& step, const compile::Sharding& sharding,
                    const program::Coordinates& rank);

}  // namespace rooflm::passes
