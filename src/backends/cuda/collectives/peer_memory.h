// Memory that ranks of one host map into each other's address space.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/collectives/rank_memory.h"
#include "backends/cuda/context.h"
#include "backends/cuda/kernels/peer_barrier.h"
#include "ranks/transport.h"

namespace rooflm::backends::cuda {

/// Memory from cudaMalloc that the other ranks of a group open by its IPC handle (CUDA C++ Programming Guide,
/// "Interprocess Communication"), and a barrier in it. Nobody frees what another has open: blocks are closed
/// by all before any is freed.
class PeerMemory final : public RankMemory {
 public:
  /// `ranks`: those of the group, in its order. All call it. Throws core::Unavailable on all of them when a
  /// GPU cannot be reached, saying which and why.
  PeerMemory(std::shared_ptr<Context> context, std::shared_ptr<ranks::Transport> transport,
             std::vector<int> ranks, Ask ask);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory() override;

  /// By rank of the group, how many bytes after `data` the same place of that rank's memory is; 0 for this
  /// rank. Throws std::logic_error where ranks do not reach it.
  using Shifts = std::array<std::ptrdiff_t, kMostPeers>;
  [[nodiscard]] const Shifts& shifts_of(const void* data) const;
  [[nodiscard]] const PeerBarrier& barrier() const { return barrier_; }
  /// Barriers that wait, and those that begin later, end at once.
  void abandon() override;

 private:
  [[nodiscard]] std::byte* make_block(std::size_t bytes, bool is_reached) override;
  void free_block(std::byte* data) noexcept override;
  [[nodiscard]] Shifts open(std::byte* data);
  /// Waits until all ranks of the group are here.
  void meet() const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<ranks::Transport> transport_;
  std::vector<int> ranks_;
  std::size_t index_ = 0;
  bool is_abandoned_ = false;
  std::map<std::byte*, Shifts> opened_;  ///< by block
  PinnedArray<unsigned> stop_;
  PeerBarrier barrier_;
};

}  // namespace rooflm::backends::cuda
