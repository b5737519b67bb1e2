// Memory of which NCCL's ranks reach each other's: windows.
#include "backends/cuda/nccl_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace rooflm::backends::cuda {
namespace {

constexpr std::size_t kAlignment = 512;
/// ncclMemAlloc gives whole pages of 2 MiB; pieces that are smaller than this share a block.
constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

NcclWindows::~NcclWindows() {
  for (const auto& [data, block] : blocks_) free_block(data, block);
}

void* NcclWindows::allocate(std::size_t bytes, std::uint64_t layout) {
  const std::size_t size = round_up(ask_(bytes).greatest);
  if (size == 0) return nullptr;
  const Range layouts = ask_(layout);
  std::byte* block = open_;
  if (layouts.least != layouts.greatest) {
    block = add_block(size, false);
  } else if (block == nullptr || blocks_.at(block).bytes - blocks_.at(block).used < size) {
    block = open_ = add_block(std::max(size, kBlockBytes), true);
  }
  Block& from = blocks_.at(block);
  std::byte* piece = block + from.used;
  from.used += size;
  ++from.pieces;
  return piece;
}

std::byte* NcclWindows::add_block(std::size_t bytes, bool with_windows) {
  void* data = nullptr;
  if (library_->mem_alloc(&data, bytes) != nccl::kSuccess) {
    throw core::OutOfMemory(fmt::format("NCCL has no {} of memory for collectives",
                                        core::format_bytes(static_cast<double>(bytes))),
                            static_cast<double>(bytes));
  }
  auto* first = static_cast<std::byte*>(data);
  Block block{.bytes = bytes};
  for (nccl::Comm comm : comms_) {
    if (!with_windows) break;
    nccl::Window window = nullptr;
    if (library_->window_register(comm, data, bytes, &window, nccl::kWindowSymmetric) != nccl::kSuccess)
      window = nullptr;
    is_reached_ = is_reached_ && window != nullptr;
    block.windows.push_back(window);
  }
  blocks_.emplace(first, std::move(block));
  return first;
}

void NcclWindows::free_block(std::byte* data, const Block& block) noexcept {
  for (std::size_t i = 0; i < std::min(comms_.size(), block.windows.size()); ++i) {
    if (block.windows[i] != nullptr)
      static_cast<void>(library_->window_deregister(comms_[i], block.windows[i]));
  }
  static_cast<void>(library_->mem_free(data));
}

bool NcclWindows::release(void* data) noexcept {
  auto* piece = static_cast<std::byte*>(data);
  auto after = blocks_.upper_bound(piece);
  if (after == blocks_.begin()) return false;
  const auto found = std::prev(after);
  Block& block = found->second;
  if (piece >= found->first + block.bytes) return false;
  if (--block.pieces > 0) return true;
  free_block(found->first, block);
  if (open_ == found->first) open_ = nullptr;
  blocks_.erase(found);
  return true;
}

}  // namespace rooflm::backends::cuda
