// What one rank's step keeps in memory, by role, from the lifetimes of its program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compile/recipe.h"
#include "perfmodel/caching_allocator.h"
#include "program/program.h"

namespace rooflm::perfmodel {

/// Bytes by role at the moment of the peak; they add up to total().
struct RankMemory {
  double weight_bytes = 0, optimizer_bytes = 0, gradient_bytes = 0, activation_bytes = 0;
  double workspace_bytes = 0;  ///< and inputs, results, scratch tensors
  double buffer_bytes = 0;     ///< of collectives
  double gap_bytes = 0;        ///< of the arena between tensors; what an allocator loses
  double context_bytes = 0;
  double saved_bytes = 0;          ///< of activation_bytes: what one micro-batch keeps for its backward pass
  double saved_by_head_bytes = 0;  ///< of saved_bytes: behind the last layer
  [[nodiscard]] double total() const {
    return weight_bytes + optimizer_bytes + gradient_bytes + activation_bytes + workspace_bytes +
           buffer_bytes + gap_bytes + context_bytes;
  }
};

/// Of a program as the engine would hold it (engines::memory_need), without context and buffers: fused in one
/// planned arena, eager by the most bytes alive at once; or as PyTorch's caching allocator holds it, whatever
/// the engine (caching_allocator.h), with what PyTorch holds longer.
RankMemory rank_memory(const program::Program& program, compile::EngineKind engine,
                       bool has_caching_allocator, const HeldTensors& held = {});

/// What tensors of a program take, op by op.
struct MemoryCourse {
  std::int64_t persistent_bytes = 0;
  std::vector<std::int64_t> alive_bytes{};  ///< by op: while it runs, what persists included
  std::size_t peak_op = 0;                  ///< the first at which most are alive
};
/// Of the tensors alone, without gaps, buffers and context: storages of the fused engine, tensors of the
/// eager one.
MemoryCourse memory_course(const program::Program& program, compile::EngineKind engine);

}  // namespace rooflm::perfmodel
