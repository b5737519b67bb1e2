// Pipeline parallelism: consecutive layers on other ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// One stage of a pipeline.
struct Stage {
  std::int64_t layers_per_part = 0;  ///< of the larger ones
  std::vector<std::string> tied;     ///< weights that another stage has, too: that of a tied head
};

/// Keeps of a forward program the ops of one stage. The layers are divided into pipeline * interleave parts
/// of equal size (but Sharding::short_ends), part p on stage p modulo pipeline; embeddings belong to the
/// first part, the last norm, head and loss to the last. The one tensor that leads from part to part is
/// received before a part and sent after it; the gradient rules of these two send its gradient back.
Stage cut_stage(program::Program& forward, const compile::Sharding& sharding,
                const program::Coordinates& rank);

/// Orders the forward and backward ops of all micro-batches, which stand one micro-batch after another, by
/// the sharding's schedule. Run after differentiate and before anything that depends on the order.
void order_pipeline(program::Program& step, const compile::Sharding& sharding,
                    const program::Coordinates& rank, int micro_batches, const Stage& stage);

}  // namespace rooflm::passes
