// Memory planning: one arena for all transient tensors, planned from their lifetimes.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/passes/lifetime.h"
#include "program/program.h"

namespace rooflm::passes {

std::vector<Lifetime> find_lifetimes(const program::Program& program);

/// Bytes of the arena shared by one tensor, or by several that succeed each other in place.
struct Storage {
  std::int64_t bytes = 0;  ///< a multiple of 64
  Lifetime lifetime;       ///< from the first to the last op of all its tensors
  std::vector<program::TensorId> tensors;
  std::int64_t offset = -1;  ///< in the arena; a multiple of 64
};

/// The arena of a program. Vectors of tensors are indexed by TensorId.
struct MemoryPlan {
  std::vector<Lifetime> lifetimes;
  std::vector<Storage> storages;  ///< sorted by the op that first writes them
  /// Index into `storages`; -1 for persistent and unused tensors.
  std::vector<int> storage_of;
  /// Byte offset in the arena; -1 for persistent and unused tensors.
  std::vector<std::int64_t> offsets;
  /// Size of the arena.
  std::int64_t arena_bytes = 0;
  /// Peak bytes of live storages: a lower bound of the arena, without fragmentation.
  std::int64_t peak_live_bytes = 0;
  /// The same if each tensor has its own storage, as the eager engine allocates them.
  std::int64_t unshared_peak_bytes = 0;
};

/// Tensors with disjoint lifetimes share bytes. An output takes over the storage of the input
/// OpDef::in_place_input if that input dies there. Storages are placed by decreasing size at the lowest
/// offset that is free (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
/// 2020).
MemoryPlan plan_memory(const program::Program& program);

/// MemoryPlan::unshared_peak_bytes without planning an arena, which takes most of the time.
std::int64_t unshared_peak_bytes(const program::Program& program);

/// Bytes of the persistent tensors: inputs, weights and their copies, optimizer state, results.
std::int64_t persistent_bytes(const program::Program& program);

}  // namespace rooflm::passes
