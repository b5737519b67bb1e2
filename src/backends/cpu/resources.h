// Resources shared by the kernels of one CPU backend (scratch memory, rotary tables), and its kernel tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/op_view.h"
#include "program/rotary.h"

namespace rooflm::backends::cpu {

/// 64-byte aligned memory, contents undefined; large blocks ask for huge pages. Free it with
/// `release_memory`. Throws core::OutOfMemory, also if the machine has less than `bytes` left. 0 bytes give
/// nullptr.
void* allocate_memory(std::size_t bytes);
void release_memory(void* data) noexcept;
/// What the C library's allocator says of the whole process, mapped blocks included.
std::optional<Backend::AllocatorBytes> allocator_bytes();
/// Bytes that this process can still allocate without swapping: available memory, or the limit of its control
/// group if that is less.
double available_memory_bytes();
/// Keeps released memory for the next allocation, instead of returning it to the system page by page in every
/// step; `trim_memory` returns it. Both affect the whole process.
void keep_released_memory();
void trim_memory() noexcept;

/// Whether a result of `bytes` is written with streaming stores. If it exceeds the last-level caches of this
/// process's cores, its beginning is evicted before its end is written, so readers read memory in any case;
/// streaming then avoids reading the lines that are overwritten. The bits do not change. Cache sizes come
/// from the system; 32 MiB if unknown.
bool is_streamed(std::int64_t bytes);

/// Scratch memory that kernels use one at a time. It only grows, and only while kernels are made.
class Scratchpad {
 public:
  Scratchpad() = default;
  Scratchpad(const Scratchpad&) = delete;
  Scratchpad& operator=(const Scratchpad&) = delete;
  ~Scratchpad() { release_memory(data_); }
  void reserve(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// cos and sin [T, D/2] of the angles of program/rotary.h, fp32 or fp64. Computed when a step first needs
/// them, so describing the kernels of a program of any size fills no tables.
template <class C>
class RopeTables {
 public:
  RopeTables(std::int64_t seq, program::Rotary rotary) : seq_(seq), rotary_(std::move(rotary)) {}
  [[nodiscard]] const C* cosines() const { return filled().cosines_.data(); }
  [[nodiscard]] const C* sines() const { return filled().sines_.data(); }

 private:
  const RopeTables& filled() const {
    std::call_once(once_, [this] { fill(); });
    return *this;
  }
  void fill() const;

  std::int64_t seq_;
  program::Rotary rotary_;
  mutable std::once_flag once_;
  mutable std::vector<C> cosines_, sines_;
};

/// Owned by the backend and by each kernel that uses it.
class Resources {
 public:
  explicit Resources(int threads) : threads_(threads) {}
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] Scratchpad& scratch() { return scratch_; }
  /// Shared by all layers.
  template <class C>
  std::shared_ptr<const RopeTables<C>> rope_tables(std::int64_t seq, const program::Rotary& rotary);

 private:
  using Key = std::pair<std::int64_t, program::Rotary>;
  template <class C>
  std::map<Key, std::shared_ptr<const RopeTables<C>>>& cache();
  int threads_;
  Scratchpad scratch_;
  std::map<Key, std::shared_ptr<const RopeTables<float>>> float_tables_;
  std::map<Key, std::shared_ptr<const RopeTables<double>>> double_tables_;
};

using OpView = backends::OpView<Resources>;
using MakerRow = backends::MakerRow<Resources>;
using MakerRows = backends::MakerRows<Resources>;

// Each .cpp of fast/ and of reference/ defines its rows; the build generates these lists.
namespace fast {
/// fp32 and bf16, hand-vectorised or by oneDNN. Ops without a row here, and other dtypes, run on the
/// reference.
MakerRows kernels();
}  // namespace fast
namespace reference {
/// Every op except `attention`, in fp32, fp64, bf16 and fp16, by Eigen and plain loops. Formulas and operands
/// are those of program/ops/.
MakerRows kernels();
}  // namespace reference

}  // namespace rooflm::backends::cpu
