// Pipeline parallelism: consecutive layers on different ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// One stage of a pipeline.
struct Stage {
  std::int64_t layers_per_part = 0;  ///< layers of the larger parts
  std::vector<std::string> tied;     ///< weights that another stage has, too: that of a tied head
};

/// Keeps the ops of one stage of a forward program. The layers are divided into pipeline * interleave parts
/// of equal size (but see Sharding::short_ends); part p is on stage p modulo pipeline. Embeddings belong to
/// the first part; the last norm, head and loss to the last. The single tensor between two parts is received
/// before a part and sent after it; the gradient rules of send and receive return its gradient.
Stage cut_stage(program::Program& forward, const compile::Sharding& sharding,
                const program::Coordinates& rank);

/// Orders the forward and backward ops of all micro-batches by the sharding's schedule; before, they are in
/// order of micro-batches. Run after differentiate and before anything that depends on the order.
void order_pipeline(program::Program& step, const compile::Sharding& sharding,
                    const program::Coordinates& rank, int micro_batches, const Stage& stage);

}  // namespace rooflm::passes
