// Memory of which NCCL's ranks reach each other's: windows.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "backends/cuda/nccl_library.h"

namespace rooflm::backends::cuda {

/// Memory from ncclMemAlloc, registered as symmetric windows of communicators: copies between GPUs and
/// kernels of few blocks need it on all ranks alike. Small pieces share one block. All ranks of the
/// communicators call everything here in the same order with the same sizes.
class NcclWindows {
 public:
  /// `comms` have windows; all outlive this. Without any nothing is allocated here.
  NcclWindows(const NcclLibrary& library, std::vector<nccl::Comm> comms)
      : library_(&library), comms_(std::move(comms)) {}
  NcclWindows(const NcclWindows&) = delete;
  NcclWindows& operator=(const NcclWindows&) = delete;
  ~NcclWindows();

  /// Aligned to 512 bytes. Throws core::OutOfMemory.
  void* allocate(std::size_t bytes);
  /// False: it is not from here.
  bool release(void* data) noexcept;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< of all blocks
  /// Whether ranks reach into all of it: otherwise it is memory as any other.
  [[nodiscard]] bool is_reached() const { return is_reached_; }
  /// The communicators are gone, or never end what they do: nothing is asked of them any more.
  void abandon() { comms_.clear(); }

 private:
  struct Block {
    std::size_t bytes = 0, used = 0;
    int pieces = 0;
    std::vector<nccl::Window> windows{};  ///< by communicator
  };
  void add_block(std::size_t bytes);
  void free_block(std::byte* data, const Block& block) noexcept;

  const NcclLibrary* library_;
  std::vector<nccl::Comm> comms_;
  std::map<std::byte*, Block> blocks_;  ///< by their first byte
  std::byte* open_ = nullptr;           ///< the block that takes small pieces
  std::size_t bytes_ = 0;
  bool is_reached_ = true;
};

}  // namespace rooflm::backends::cuda
