// Ops of a rank that has a part of the vocabulary, or pieces of each sequence.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

// What the pass writes. No backend has kernels of these yet, so none takes one of them for the op whose name
// it has; tests/engines/part_kernels.h has them for the proof on the CPU.

/// embedding of a table that has the rows [first, first + V'): zeros for other tokens. Its gradient leaves
/// them out.
extern const program::OpDef kEmbeddingOfPart, kEmbeddingBackwardOfPart;
/// Of logits of the columns [first, first + V'): the target's logit, 0 where another rank has it, and lse
/// over the own columns.
extern const program::OpDef kCrossEntropyOfPart;
/// Given the lse of all columns, the gradient of the own ones.
extern const program::OpDef kCrossEntropyBackwardOfPart;
/// losses, lse, lses of all ranks [parts N]: lse = log sum exp of them, losses = lse - losses, in place.
/// `losses` was the targets' logits. Parts that have no valid column have lse -inf.
extern const program::OpDef kJoinLosses;

/// rope and positions of the pieces `index` and 2 parts - 1 - `index` of 2 `parts`.
extern const program::OpDef kRopeOfPieces, kAddPositionsOfPieces, kAddPositionsBackwardOfPieces,
    kEmbeddingPositionsOfPieces;

/// Puts them in the place of the ops of a finished step: of those with the attribute `first`, and, with
/// context ranks, of what depends on positions.
void name_part_ops(program::Program& step, const compile::Sharding& sharding,
                   const program::Coordinates& rank);

}  // namespace rooflm::passes
