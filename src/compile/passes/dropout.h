// Dropout, as frameworks have it whose models were trained with it.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// What the pass writes. They are described, and no kernel computes them: they are no part of ops::all(). A
// mask has one byte for each element.
/// x -> y, mask. With the flag `fused` it is part of the op that adds the residual: only the mask is written,
/// and the sum read once more by the norm that follows.
extern const program::OpDef kDropout;
/// dy, mask -> dx.
extern const program::OpDef kDropoutBackward;

/// Puts dropout behind every softmax of attention and behind the two products of a layer that end in the
/// residual, and its gradient into the backward pass, as GPT models of Megatron-LM have them
/// (megatron/model/transformer.py: attention_dropout, bias_dropout_add). Of a finished step with batched
/// attention, before overlap_collectives.
void dropout(program::Program& step);

}  // namespace rooflm::passes
