// Dropout, for plans of frameworks that train with it.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// Ops that the pass emits. No kernel computes them, so they are not in ops::all(). A mask has one byte per
// element.
/// x -> y, mask. With the flag `fused` it is part of the op that adds the residual: only the mask is written,
/// and the following norm reads the sum once more.
extern const program::OpDef kDropout;
/// dy, mask -> dx.
extern const program::OpDef kDropoutBackward;

/// Inserts dropout after every attention softmax and after the two matmuls of a layer that feed the residual,
/// and its gradient into the backward pass, as in GPT models of Megatron-LM (megatron/model/transformer.py:
/// attention_dropout, bias_dropout_add). For a finished step with batched attention, before
/// overlap_collectives.
void dropout(program::Program& step);

}  // namespace rooflm::passes
