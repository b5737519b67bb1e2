// Where every transient tensor of a program lives: one arena, planned from lifetimes.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/passes/lifetime.h"
#include "program/program.h"

namespace rooflm::passes {

std::vector<Lifetime> find_lifetimes(const program::Program& program);

/// Bytes of the arena that one tensor has, or several, each in the place of the one before.
struct Storage {
  std::int64_t bytes = 0;  ///< a multiple of 64
  Lifetime lifetime;       ///< of all its tensors
  std::vector<program::TensorId> tensors;
  std::int64_t offset = -1;  ///< in the arena; a multiple of 64
};

/// The arena of a program. Vectors of tensors are indexed by TensorId.
struct MemoryPlan {
  std::vector<Lifetime> lifetimes;
  std::vector<Storage> storages;  ///< by the op that first writes them
  /// Index into `storages`; -1 for persistent and unused tensors.
  std::vector<int> storage_of;
  /// Byte offset in the arena; -1 for persistent and unused tensors.
  std::vector<std::int64_t> offsets;
  /// Size of the arena.
  std::int64_t arena_bytes = 0;
  /// Most bytes of storages alive at once: what the arena would need if nothing were ever in the way.
  std::int64_t peak_live_bytes = 0;
  /// The same where each tensor has a storage of its own, as the eager engine allocates them.
  std::int64_t unshared_peak_bytes = 0;
};

/// Tensors whose lifetimes do not overlap share bytes; an output takes the place of the input that
/// OpDef::in_place_input names when that input dies there. Offsets by decreasing size, lowest gap first
/// (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020).
MemoryPlan plan_memory(const program::Program& program);

/// MemoryPlan::unshared_peak_bytes without the plan of an arena, which takes most of the time.
std::int64_t unshared_peak_bytes(const program::Program& program);

/// Bytes of the persistent tensors: inputs, weights and their copies, optimizer state, results.
std::int64_t persistent_bytes(const program::Program& program);

}  // namespace rooflm::passes
