// Collectives of ranks that map each other's memory.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "backends/cuda/collectives/collectives.h"
#include "backends/cuda/collectives/peer_memory.h"
#include "backends/cuda/kernels/peer_sum.h"

namespace rooflm::backends::cuda {

/// Gathers are copies from the other ranks. Sums and updates of mapped memory lie between barriers of the
/// program; all other collectives are NCCL's.
class PeerCollectives final : public Collectives {
 public:
  /// `memory` outlives this.
  PeerCollectives(const NcclLibrary& library, const Member& own, const PeerMemory& memory)
      : Collectives(library, own), memory_(&memory) {}

  /// Copies of the other ranks' parts, by copy engines. Barriers of the program say when they are there.
  void all_gather(const DeviceTransfers& whole, cudaStream_t stream) const override;

  void barrier(cudaStream_t stream) const { launch_peer_barrier(stream, memory_->barrier()); }
  /// Each rank adds up its part of all; `to_all`: in place, and the sums go to where all others have that
  /// part.
  void sum(const DeviceTransfers& whole, cudaStream_t stream, bool to_all) const;
  /// Where all of these addresses are on the other ranks. Throws std::logic_error unless they lie in one
  /// block.
  [[nodiscard]] PeerPlaces places_of(std::span<const void* const> data) const;

 private:
  const PeerMemory* memory_;
};

}  // namespace rooflm::backends::cuda
