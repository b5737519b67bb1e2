// Memory of which NCCL's ranks reach each other's: windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "backends/cuda/nccl_library.h"

namespace rooflm::backends::cuda {

/// Memory from ncclMemAlloc, registered as symmetric windows of communicators: a rank finds what it reads or
/// writes of another at the place that its own has. Small pieces share one block. All ranks of the
/// communicators allocate and release in the same order; each piece takes what the rank needs that needs
/// most, so that all begin at the same place.
class NcclWindows {
 public:
  /// The least and the greatest of a number that each rank of the communicators gives; all ask together.
  struct Range {
    std::uint64_t least = 0, greatest = 0;
  };
  using Ask = std::function<Range(std::uint64_t own)>;

  /// `comms` have windows; all outlive this.
  NcclWindows(const NcclLibrary& library, std::vector<nccl::Comm> comms, Ask ask)
      : library_(&library), comms_(std::move(comms)), ask_(std::move(ask)) {}
  NcclWindows(const NcclWindows&) = delete;
  NcclWindows& operator=(const NcclWindows&) = delete;
  ~NcclWindows();

  /// Aligned to 512 bytes. `layout` says what will lie where in it: where ranks differ in that, it is memory
  /// of its own without a window. Throws core::OutOfMemory.
  void* allocate(std::size_t bytes, std::uint64_t layout);
  /// False: it is not from here.
  bool release(void* data) noexcept;
  /// Whether ranks reach into all of it that has a window: otherwise it is memory as any other.
  [[nodiscard]] bool is_reached() const { return is_reached_; }
  /// The communicators are gone, or never end what they do: nothing is asked of them any more.
  void abandon() { comms_.clear(); }

 private:
  struct Block {
    std::size_t bytes = 0, used = 0;
    int pieces = 0;
    std::vector<nccl::Window> windows{};  ///< by communicator
  };
  std::byte* add_block(std::size_t bytes, bool with_windows);
  void free_block(std::byte* data, const Block& block) noexcept;

  const NcclLibrary* library_;
  std::vector<nccl::Comm> comms_;
  Ask ask_;
  std::map<std::byte*, Block> blocks_;  ///< by their first byte
  std::byte* open_ = nullptr;           ///< the block that takes small pieces
  bool is_reached_ = true;
};

}  // namespace rooflm::backends::cuda
