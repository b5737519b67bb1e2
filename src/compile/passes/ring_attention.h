// Context parallelism: attention over sequences whose parts are on several ranks.
#pragma once

#include <cstdint>

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// passed: keys and values go around the ring, beside attention. gathered: as PyTorch's context_parallel does
/// in a layer that torch.compile has traced (torch/distributed/tensor/experimental/_attention.py of December
/// 2024): keys and values, repeated for every query head, are gathered once from all ranks; gradients of a
/// block are written in 16 bits and added to fp32 sums in passes of their own; and each collective is awaited
/// where it starts (_maybe_wrap_tensor of _functional_collectives.py, when it traces), so nothing runs beside
/// it. Planned only.
enum class RingKind : std::uint8_t { passed, gathered };

/// Rewrites the flash attention of a finished step of one of `sharding.context` ranks, before
/// overlap_collectives: keys and values go around the ring in context - 1 steps, each while attention to
/// those that are there is computed; in the backward pass their gradients follow, in context steps, until
/// they are home again (Liu et al., "Ring Attention", 2023). Each rank has two pieces of a sequence
/// (program/pieces.h): ops that depend on positions are told which. Does nothing for one rank. Throws
/// core::UsageError for attention that is no flash attention.
void ring_attention(program::Program& step, const compile::Sharding& sharding,
                    const program::Coordinates& rank, RingKind kind = RingKind::passed);

}  // namespace rooflm::passes
