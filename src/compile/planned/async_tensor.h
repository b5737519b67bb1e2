// Asynchronous tensor parallelism: ranks exchange rows while their matmuls run.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

// Ops that the pass emits. They are for plans only: no kernel computes them, so they are not in ops::all().
/// Copies a rank's own rows to their place in the gathered tensor.
extern const program::OpDef kPlaceRows;
/// Copies rows to or from another rank by a copy engine; attribute `bytes`. Lane `copy`.
extern const program::OpDef kCopyRows;
/// The computation waits here until such a copy is done.
extern const program::OpDef kRowsArrived;
/// Sums the rows that all ranks computed for this rank.
extern const program::OpDef kSumRows;

/// PyTorch's asynchronous tensor parallelism (torch/_inductor/fx_passes/micro_pipeline_tp.py,
/// torch/distributed/_symmetric_memory), within layers:
/// - all_gather + matmul: the matmul is split into one part per rank's rows, its own first, while copy
/// engines
///   fetch the rows of the others.
/// - matmul + reduce_scatter: the matmul computes the rows of one rank at a time; they are sent off and
/// summed at
///   the end.
/// A sum of several matmuls before a reduce_scatter (the input gradient of qkv and fc1) is not recognised
/// there and stays a collective. Rows of several sequences are gathered by position (movedim of the gathered
/// dimension in _fused_all_gather_matmul); a weight gradient needs them by sequence, so in 16 bits it takes a
/// copy. Runs on a finished step, before row_copies.
void async_tensor(program::Program& step, const compile::Sharding& sharding);

/// Whether the op moves data between ranks on the lane `copy`.
inline bool is_row_copy(const program::Op& op) { return op.is(kCopyRows); }

}  // namespace rooflm::passes
