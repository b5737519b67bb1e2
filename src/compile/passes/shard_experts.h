// Expert parallelism: ranks have some of the experts of each layer.
#pragma once

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// Rewrites a rank's forward pass: its weights of experts are those of E / N experts, and rows travel to the
/// rank of their expert and back (exchange_rows, return_rows in program/ops/exchange.cpp). Everything between
/// has room for the rows of all N ranks.
void shard_experts(program::Program& forward, const compile::Sharding& sharding,
                   const program::Coordinates& rank);

}  // namespace rooflm::passes
