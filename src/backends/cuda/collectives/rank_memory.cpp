// Memory that ranks allocate together, so that they can reach each other's.
#include "backends/cuda/collectives/rank_memory.h"

#include <algorithm>
#include <iterator>

namespace rooflm::backends::cuda {
namespace {

constexpr std::size_t kAlignment = 512;
/// Blocks are whole pages of 2 MiB; pieces that are smaller than this share one.
constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void* RankMemory::allocate(std::size_t bytes, std::uint64_t layout) {
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

std::byte* RankMemory::add_block(std::size_t bytes, bool is_reached) {
  std::byte* data = make_block(bytes, is_reached);
  blocks_.emplace(data, Block{.bytes = bytes});
  return data;
}

std::map<std::byte*, RankMemory::Block>::const_iterator RankMemory::find(const void* data) const {
  const auto* piece = static_cast<const std::byte*>(data);
  const auto after = std::ranges::find_if(
      blocks_, [piece](const auto& entry) { return std::less<const std::byte*>()(piece, entry.first); });
  if (after == blocks_.begin()) return blocks_.end();
  const auto found = std::prev(after);
  return piece < found->first + found->second.bytes ? found : blocks_.end();
}

std::byte* RankMemory::block_of(const void* data) const {
  const auto found = find(data);
  return found == blocks_.end() ? nullptr : found->first;
}

bool RankMemory::release(void* data) noexcept {
  std::byte* first = block_of(data);
  if (first == nullptr) return false;
  if (--blocks_.at(first).pieces > 0) return true;
  free_block(first);
  if (open_ == first) open_ = nullptr;
  blocks_.erase(first);
  return true;
}

void RankMemory::free_all() noexcept {
  for (const auto& [data, block] : blocks_) free_block(data);
  blocks_.clear();
}

}  // namespace rooflm::backends::cuda
