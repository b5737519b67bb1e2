// Context parallelism: attention over sequences that are spread over several ranks.
#pragma once

#include <cstdint>

#include "compile/sharding.h"
#include "program/program.h"

namespace rooflm::passes {

/// How keys and values reach the other ranks.
/// - passed: they move around the ring while attention runs.
/// - gathered (for plans only): as PyTorch's context_parallel in a layer traced by torch.compile
///   (torch/distributed/tensor/experimental/_attention.py of December 2024). Keys and values, repeated for
///   every query head, are gathered once from all ranks. Gradients of a block are written in 16 bits and
///   added to fp32 sums in separate passes. Each collective is awaited where it starts (_maybe_wrap_tensor of
///   _functional_collectives.py, when tracing), so nothing overlaps it.
enum class RingKind : std::uint8_t { passed, gathered };

/// Rewrites the flash attention of a finished step for one of `sharding.context` ranks, before
/// overlap_collectives. Keys and values move around the ring in context - 1 steps, each overlapped by the
/// attention to those that have arrived. In the backward pass their gradients follow in context steps, until
/// they are back at their rank (Liu et al., "Ring Attention", 2023). Each rank has two pieces of a sequence
/// (program/pieces.h); ops that depend on positions are told which. Does nothing for one rank. Throws
/// core::UsageError for attention other than flash attention.
void ring_attention(program::Program& step, const compile::Sharding& sharding,
                    const program::Coordinates& rank, RingKind kind = RingKind::passed);

}  // namespace rooflm::passes
