// How the collectives of a group of ranks run on a GPU: by NCCL's own kernels, or in a way that overrides
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/collectives/nccl_library.h"
#include "core/dtype.h"
#include "program/groups.h"

namespace rooflm::backends::cuda {

/// Elements of one tensor in device memory, as comm::Transfer has them.
struct DeviceTransfer {
  core::DType dtype = core::DType::f32;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t elements = 0;  ///< of the whole tensor
  program::Cut cut{};         ///< into the parts of ranks

  [[nodiscard]] std::size_t bytes_of(std::int64_t count) const {
    return static_cast<std::size_t>(count) * core::size_of(dtype);
  }
  [[nodiscard]] program::Part part_of(int ranks, int index) const {
    return program::part_of(elements, ranks, index, cut);
  }
  /// Elements of the largest part.
  [[nodiscard]] std::int64_t most_elements(int ranks) const {
    return part_of(ranks, std::max(cut.owner, 0)).size();
  }
  /// Whether all ranks have as many elements, as NCCL's own splitting wants it.
  [[nodiscard]] bool is_even(int ranks) const {
    return elements % ranks == 0 && part_of(ranks, 0).size() == elements / ranks;
  }
  [[nodiscard]] const std::byte* from_at(std::int64_t element) const {
    return static_cast<const std::byte*>(from) + bytes_of(element);
  }
  [[nodiscard]] std::byte* to_at(std::int64_t element) const {
    return static_cast<std::byte*>(to) + bytes_of(element);
  }
};
using DeviceTransfers = std::vector<DeviceTransfer>;

/// This rank's end of a communicator of NCCL.
struct Member {
  nccl::Comm comm = nullptr;
  int ranks = 1, index = 0;
};

/// Throws core::Unavailable where NCCL does not add up the dtype.
nccl::DataType type_of(core::DType dtype);

/// NCCL's own kernels; a way of collectives (backends/collective_way.h) overrides what it does otherwise. All
/// only submit.
class Collectives {
 public:
  /// Both outlive this.
  Collectives(const NcclLibrary& library, const Member& own) : library_(&library), own_(&own) {}
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives() = default;

  virtual void all_reduce(const DeviceTransfers& whole, cudaStream_t stream) const;
  virtual void all_gather(const DeviceTransfers& whole, cudaStream_t stream) const;
  virtual void reduce_scatter(const DeviceTransfers& whole, cudaStream_t stream) const;
  /// A reduce_scatter that adds the sums to what is there. False, and nothing is submitted: it cannot.
  [[nodiscard]] virtual bool add_scattered(const DeviceTransfers& /*whole*/, cudaStream_t /*stream*/) const {
    return false;
  }
  /// In a ring: `from` goes to the next rank, `to` comes from the one before.
  void pass_on(const DeviceTransfers& whole, cudaStream_t stream) const;

  /// Says how much a reduction of these receives.
  virtual void reserve(const DeviceTransfers& /*whole*/) {}
  /// How many multiprocessors they take while they overlap matmuls; 0: matmuls leave them none.
  [[nodiscard]] virtual int multiprocessors() const { return 0; }

 protected:
  [[nodiscard]] const NcclLibrary& library() const { return *library_; }
  [[nodiscard]] const Member& own() const { return *own_; }

 private:
  template <class Even, class Uneven>
  void submit_parts(const DeviceTransfers& whole, const char* what, const Even& even,
                    const Uneven& uneven) const;

  const NcclLibrary* library_;
  const Member* own_;
};

/// Several calls that NCCL runs as one.
class Grouped {
 public:
  Grouped(const NcclLibrary& library, const char* what) : library_(&library), what_(what) {
    library_->check(library_->group_start(), "beginning a group");
  }
  Grouped(const Grouped&) = delete;
  Grouped& operator=(const Grouped&) = delete;
  ~Grouped() {
    if (!has_ended_) static_cast<void>(library_->group_end());
  }
  void add(nccl::Result result) const { library_->check(result, what_); }
  void end() {
    has_ended_ = true;
    add(library_->group_end());
  }

 private:
  const NcclLibrary* library_;
  const char* what_;
  bool has_ended_ = false;
};

}  // namespace rooflm::backends::cuda
