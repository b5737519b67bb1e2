// Ops of a rank that has a part of the vocabulary.
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

/// Puts them in the place of the ops of a finished step that have the attribute `first`.
void name_part_ops(program::Program& step, const compile::Sharding& sharding);

}  // namespace rooflm::passes
