// Where every transient tensor of a program lives: one arena, planned from lifetimes.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace rooflm::passes {

/// First op that writes a tensor and last op that touches it, as indices into Program::ops; both -1 when no
/// op does.
struct Lifetime {
  int first = -1;
  int last = -1;
};
std::vector<Lifetime> find_lifetimes(const program::Program& program);

/// The arena of a program. Index by TensorId.
struct MemoryPlan {
  std::vector<Lifetime> lifetimes;
  /// Byte offset in the arena; -1 for persistent and unused tensors. Multiples of 64.
  std::vector<std::int64_t> offsets;
  /// Size of the arena.
  std::int64_t arena_bytes = 0;
  /// Most bytes alive at once, with nothing sharing storage in place: what an allocator that frees each
  /// tensor after its last use would reach at best.
  std::int64_t peak_live_bytes = 0;
};

/// Tensors whose lifetimes do not overlap share bytes; an output takes the place of the input that
/// OpDef::in_place_input names when that input dies there. Offsets by decreasing size, lowest gap first
/// (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020).
MemoryPlan plan_memory(const program::Program& program);

/// Bytes of the persistent tensors: inputs, weights and their copies, optimizer state, results.
std::int64_t persistent_bytes(const program::Program& program);

}  // namespace rooflm::passes
