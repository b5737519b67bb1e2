// Tensor-parallel ranks that exchange rows beside their products.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

// What the pass writes. It is described, and no kernel computes it: it is no part of ops::all().
/// A rank's own rows, copied to where those of all ranks are put together.
extern const program::OpDef kPlaceRows;
/// Rows of another rank, from or to it, by a copy engine: attribute `bytes`. Lane `copy`.
extern const program::OpDef kCopyRows;
/// The computation waits until such a copy is done.
extern const program::OpDef kRowsArrived;
/// The sum of what all ranks made of a rank's rows.
extern const program::OpDef kSumRows;

/// PyTorch's asynchronous tensor parallelism (torch/_inductor/fx_passes/micro_pipeline_tp.py,
/// torch/distributed/_symmetric_memory): in layers, a product that reads what is gathered is done in parts,
/// one for the rows of each rank, the own ones first, while copy engines fetch the others'; and a product
/// whose result is reduced and scattered makes the rows of one rank after the other, which are sent off and
/// added up at the end. A sum of several products before a reduce_scatter, as the gradient of qkv's and fc1's
/// input is, is not found there and stays a collective. Rows of several sequences are gathered by position
/// (movedim of the gathered dimension in _fused_all_gather_matmul), so in 16 bits the gradient of a weight,
/// for which they are flattened by sequence, takes a copy. Of a finished step, before row_copies.
void async_tensor(program::Program& step, const compile::Sharding& sharding);

/// Whether the op moves data between ranks on the lane `copy`.
inline bool is_row_copy(const program::Op& op) { return op.is(kCopyRows); }

}  // namespace rooflm::passes
