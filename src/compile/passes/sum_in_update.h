// Data-parallel ranks whose updates read the gradients of all ranks where they are.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// For ranks that map each other's memory (backends::CollectiveWay::peer_memory). Nothing is summed while the
/// backward pass runs. Gradients that only updates read are not summed by collectives at all: the update gets
/// the attributes `sums` and those of a collective (program/ops/collectives.cpp), reads the whole gradient of
/// each rank, and adds up the elements that it needs, in rank order and rounded as a collective would. Where
/// the norm reads the sums, one collective with the attribute `mapped` takes them after the backward pass. So
/// the numbers are those of the collectives before. Updates run as early as without ranks
/// (passes/early_updates.h). Barriers tell ranks when gradients are complete and when all have read them; one
/// at the start of the step tells them that the weights that are gathered from other ranks are there.
///
/// Collectives stay where they are if anything else reads the sum (tied weights of pipelines), if some rank
/// has nothing of it, and with zero >= 2, whose gradients are freed before the update. Runs on a finished
/// step, before sum_norm. `lane`: where early updates run, as in early_updates.
void sum_in_update(program::Program& step, const compile::Sharding& sharding,
                   const program::Coordinates& rank, program::Lane lane);
/// The same for a forward pass alone: the barrier before weights of other ranks are read.
void wait_for_weights(program::Program& step, const compile::Sharding& sharding,
                      const program::Coordinates& rank);

}  // namespace rooflm::passes
