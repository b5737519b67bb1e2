// The copies that PyTorch makes around collectives.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace rooflm::passes {

// What the passes write. It is described, and no kernel computes it: it is no part of ops::all().
/// y_i = x_i in another order, or in another dtype.
extern const program::OpDef kRearrange;

/// What FSDP makes around its collectives; all dtypes are of gradients while they are reduced.
enum class UnitKind : std::uint8_t {
  none,
  copied,      ///< FSDP2: copies in and out of a buffer, fp32
  flat,        ///< FSDP1: gradients put into one flat tensor, fp32
  flat_halves  ///< the same in the compute dtype
};

/// UnitKind::copied: FSDP2 (PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py): the weights
/// of a unit are gathered into one buffer, of which `split_with_sizes_copy` makes the weights; gradients in
/// 16 bits are put into one fp32 buffer by `chunk_cat`, which is reduced. Both copies run on the stream of
/// the computation. Of a finished step of `zero` 2 or 3, before overlap_collectives; gradients that are added
/// up over micro-batches stay what they are. UnitKind::flat: FSDP1 (torch/distributed/fsdp/_runtime_utils.py
/// of PyTorch 2.1): weights are views of what is gathered; gradients of each micro-batch are concatenated
/// into one flat tensor, cast to the dtype that they are reduced in, and divided by a part of the number of
/// ranks (`_div_if_needed`), in passes of their own. One op stands for these.
void unit_buffers(program::Program& step, UnitKind kind);

/// Functional collectives (torch/distributed/_functional_collectives.py) along another dimension than the
/// first: what is gathered is cut into chunks and concatenated, and so is what is about to be reduced and
/// scattered. Of the activations that sequence-parallel ranks exchange, of a finished step, before
/// overlap_collectives.
void row_copies(program::Program& step);

}  // namespace rooflm::passes
