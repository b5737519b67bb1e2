// The groups of ranks that a GPU shares work with, and their collectives through NCCL.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/context.h"
#include "backends/cuda/nccl_library.h"
#include "core/dtype.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends::cuda {

/// Elements of one tensor in device memory, as comm::Transfer has them.
struct DeviceTransfer {
  core::DType dtype = core::DType::f32;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t elements = 0;  ///< of the whole tensor
  std::int64_t unit = 1;      ///< of the parts (program::part_of)
};

/// One communicator per group. All only submit. While it lives, waiting for the context's stream ends with
/// ranks::RankLost when another rank has ended, or none of the ranks has come further for the transport's
/// patience.
class NcclGroups : public std::enable_shared_from_this<NcclGroups> {
 public:
  /// Joins the others of each group of `mesh`; all ranks call it. Throws core::Unavailable where NCCL is not
  /// here or does not work.
  static std::shared_ptr<NcclGroups> join(const std::shared_ptr<Context>& context,
                                          std::shared_ptr<ranks::Transport> transport,
                                          const program::Mesh& mesh);
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  ~NcclGroups();

  void all_reduce(program::Group group, const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const;
  void all_gather(program::Group group, const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const;
  void reduce_scatter(program::Group group, const std::vector<DeviceTransfer>& whole,
                      cudaStream_t stream) const;

  [[nodiscard]] const NcclLibrary& library() const { return *library_; }
  [[nodiscard]] Context& context() const { return *context_; }

 private:
  NcclGroups(std::shared_ptr<Context> context, std::shared_ptr<ranks::Transport> transport,
             const program::Mesh& mesh);
  struct Member {
    nccl::Comm comm = nullptr;
    int ranks = 1, index = 0;
  };
  void connect(program::Group group, const program::Mesh& mesh);
  void watch(double waited_s);
  void abort();
  [[nodiscard]] const Member& member(program::Group group) const {
    return members_.at(static_cast<std::size_t>(group));
  }

  const NcclLibrary* library_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<ranks::Transport> transport_;
  std::array<Member, 5> members_{};  ///< by group
};

}  // namespace rooflm::backends::cuda
