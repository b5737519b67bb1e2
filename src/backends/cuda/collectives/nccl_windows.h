// Memory of which NCCL's ranks reach each other's: windows.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "backends/cuda/collectives/nccl_library.h"
#include "backends/cuda/collectives/rank_memory.h"

namespace rooflm::backends::cuda {

/// Memory from ncclMemAlloc, registered as symmetric windows of communicators: a rank finds what it reads or
/// writes of another at the place that its own has.
class NcclWindows final : public RankMemory {
 public:
  /// `comms` have windows; all outlive this.
  NcclWindows(const NcclLibrary& library, std::vector<nccl::Comm> comms, Ask ask)
      : RankMemory(std::move(ask)), library_(&library), comms_(std::move(comms)) {}
  NcclWindows(const NcclWindows&) = delete;
  NcclWindows& operator=(const NcclWindows&) = delete;
  ~NcclWindows() override { free_all(); }

  /// Whether ranks reach into all of it that has a window: otherwise it is memory as any other.
  [[nodiscard]] bool is_reached() const { return is_reached_; }
  void abandon() override { comms_.clear(); }

 private:
  [[nodiscard]] std::byte* make_block(std::size_t bytes, bool is_reached) override;
  void free_block(std::byte* data) noexcept override;

  const NcclLibrary* library_;
  std::vector<nccl::Comm> comms_;
  std::map<std::byte*, std::vector<nccl::Window>> windows_;  ///< of each block, by communicator
  bool is_reached_ = true;
};

}  // namespace rooflm::backends::cuda
