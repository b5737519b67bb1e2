// The copies that PyTorch makes around collectives.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// What the passes write. It is described, and no kernel computes it: it is no part of ops::all().
/// y_i = x_i in another order, or in another dtype.
extern const program::OpDef kRearrange;

/// FSDP2 (PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py): the weights of a unit are
/// gathered into one buffer, of which `split_with_sizes_copy` makes the weights; gradients in 16 bits are put
/// into one fp32 buffer by `chunk_cat`, which is reduced. Both copies run on the stream of the computation.
/// Of a finished step of `zero` 2 or 3, before overlap_collectives; gradients that are added up over
/// micro-batches stay what they are.
void unit_buffers(program::Program& step);

/// Functional collectives (torch/distributed/_functional_collectives.py) along another dimension than the
/// first: what is gathered is cut into chunks and concatenated, and so is what is about to be reduced and
/// scattered. Of the activations that sequence-parallel ranks exchange, of a finished step, before
/// overlap_collectives.
void row_copies(program::Program& step);

}  // namespace rooflm::passes
