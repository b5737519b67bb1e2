// The copies that PyTorch makes around collectives. For plans only.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace rooflm::passes {

// Emitted by the passes; no kernel computes it, so it is not in ops::all(). y_i = x_i in another layout or
// dtype.
extern const program::OpDef kRearrange;

/// What FSDP does around its collectives. The dtype is that of gradients while they are reduced.
enum class UnitKind : std::uint8_t {
  none,
  copied,      ///< FSDP2: copies into and out of a buffer, fp32
  flat,        ///< FSDP1: gradients concatenated into one flat tensor, fp32
  flat_halves  ///< the same in the compute dtype
};

/// UnitKind::copied: FSDP2 (PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py). The weights
/// of a unit are gathered into one buffer, from which `split_with_sizes_copy` makes the weights. 16-bit
/// gradients are copied into one fp32 buffer by `chunk_cat`, which is then reduced. Both copies run on the
/// compute stream. Gradients that accumulate over micro-batches do not change.
///
/// UnitKind::flat: FSDP1 (torch/distributed/fsdp/_runtime_utils.py of PyTorch 2.1). Weights are views of the
/// gathered tensor. The gradients of each micro-batch are concatenated into one flat tensor, cast to the
/// reduction dtype, and divided by a part of the number of ranks (`_div_if_needed`), in separate passes; one
/// op stands for them.
///
/// For a finished step with `zero` 2 or 3, before overlap_collectives.
void unit_buffers(program::Program& step, UnitKind kind);

/// Functional collectives (torch/distributed/_functional_collectives.py) along a dimension other than the
/// first: a gathered tensor is cut into chunks and concatenated, and so is a tensor before it is reduced and
/// scattered. Applies to activations that sequence-parallel ranks exchange, in a finished step, before
/// overlap_collectives.
void row_copies(program::Program& step);

}  // namespace rooflm::passes
