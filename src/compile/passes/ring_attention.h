// Context parallelism: attention over sequences whose parts are on several ranks.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// Rewrites the flash attention of a finished step of one of `sharding.context` ranks, before
/// overlap_collectives: keys and values go around the ring in context - 1 steps, each while attention to
/// those that are there is computed; in the backward pass their gradients follow, in context steps, until
/// they are home again (Liu et al., "Ring Attention", 2023). Each rank has two pieces of a sequence
/// (program/pieces.h): ops that depend on positions are told which. Does nothing for one rank. Throws
/// core::UsageError for attention that is no flash attention.
void ring_attention(program::Program& step, const compile::Sharding& sharding,
                    const program::Coordinates& rank);

}  // namespace rooflm::passes
