// Memory that ranks allocate together, so that they can reach each other's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

namespace rooflm::backends::cuda {

/// All ranks of a group allocate and release in the same order; each piece takes what the rank needs that
/// needs most, and small pieces share blocks, so all begin at the same place of the same block. How a block
/// is allocated, and how ranks reach each other's, is up to derived classes.
class RankMemory {
 public:
  /// The least and the greatest of a number that each rank gives; all ask together.
  struct Range {
    std::uint64_t least = 0, greatest = 0;
  };
  using Ask = std::function<Range(std::uint64_t own)>;

  explicit RankMemory(Ask ask) : ask_(std::move(ask)) {}
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  /// Derived classes call free_all in their destructors.
  virtual ~RankMemory() = default;

  /// Aligned to 512 bytes. `layout` says what will lie where in it: where ranks differ in that, it is memory
  /// that they do not reach. Throws core::OutOfMemory.
  void* allocate(std::size_t bytes, std::uint64_t layout);
  /// False: it is not from here.
  bool release(void* data) noexcept;
  /// Ranks have ended, or never end what they do: they are not asked any more.
  virtual void abandon() = 0;

 protected:
  [[nodiscard]] virtual std::byte* make_block(std::size_t bytes, bool is_reached) = 0;
  virtual void free_block(std::byte* data) noexcept = 0;
  void free_all() noexcept;
  /// The first byte of the block in which `data` lies; nullptr: it is not from here.
  [[nodiscard]] std::byte* block_of(const void* data) const;

 private:
  struct Block {
    std::size_t bytes = 0, used = 0;
    int pieces = 0;
  };
  [[nodiscard]] std::map<std::byte*, Block>::const_iterator find(const void* data) const;
  std::byte* add_block(std::size_t bytes, bool is_reached);

  Ask ask_;
  std::map<std::byte*, Block> blocks_;  ///< by their first byte
  std::byte* open_ = nullptr;           ///< the block that takes small pieces
};

}  // namespace rooflm::backends::cuda
