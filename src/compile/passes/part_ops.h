// Ops of a rank that has a part of the vocabulary.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

// Ops that the pass emits. No backend has kernels for them yet, and none mistakes one for the op of the same
// name; tests/engines/part_kernels.h implements them to verify the rewrite on the CPU.

/// embedding with a table of the rows [first, first + V'): zeros for other tokens. The gradient ignores them.
extern const program::OpDef kEmbeddingOfPart, kEmbeddingBackwardOfPart;
/// From logits of the columns [first, first + V'): the target's logit, or 0 if another rank has it; and the
/// lse over these columns.
extern const program::OpDef kCrossEntropyOfPart;
/// The gradient of these columns, given the lse over all columns.
extern const program::OpDef kCrossEntropyBackwardOfPart;
/// losses, lse, lses of all ranks [parts N]: lse = log sum exp of the lses, losses = lse - losses, in place.
/// `losses` holds the targets' logits before. A part without valid columns has lse = -inf.
extern const program::OpDef kJoinLosses;

/// Replaces the ops of a finished step that have the attribute `first` by the ops above.
void name_part_ops(program::Program& step, const compile::Sharding& sharding);

}  // namespace rooflm::passes
