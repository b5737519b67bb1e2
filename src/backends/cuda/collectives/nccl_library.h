// NCCL, opened when it is first needed.
#pragma once

#include <string>
#include <string_view>

#include "backends/cuda/collectives/nccl_abi.h"

namespace rooflm::backends::cuda {

/// The first version whose windows give right numbers.
constexpr int kRightWindows = 22807;

struct NcclLibrary {
  nccl::GetVersion* get_version = nullptr;
  nccl::GetUniqueId* get_unique_id = nullptr;
  nccl::CommInitRank* comm_init_rank = nullptr;
  nccl::CommDestroy* comm_destroy = nullptr;
  nccl::CommAbort* comm_abort = nullptr;
  nccl::CommGetAsyncError* comm_get_async_error = nullptr;
  nccl::GetErrorString* get_error_string = nullptr;
  nccl::GetLastError* get_last_error = nullptr;  ///< may be null
  nccl::Group* group_start = nullptr;
  nccl::Group* group_end = nullptr;
  nccl::AllReduce* all_reduce = nullptr;
  nccl::AllGather* all_gather = nullptr;
  nccl::ReduceScatter* reduce_scatter = nullptr;
  nccl::Broadcast* broadcast = nullptr;
  nccl::Reduce* reduce = nullptr;
  nccl::Send* send = nullptr;
  nccl::Recv* recv = nullptr;
  // What older ones lack; they may be null.
  nccl::CommInitRankConfig* comm_init_rank_config = nullptr;
  nccl::AllToAll* all_to_all = nullptr;
  nccl::MemAlloc* mem_alloc = nullptr;
  nccl::MemFree* mem_free = nullptr;
  nccl::CommWindowRegister* window_register = nullptr;
  nccl::CommWindowDeregister* window_deregister = nullptr;
  int version = 0;  ///< 22809 is 2.28.9

  [[nodiscard]] std::string version_text() const;  ///< "2.28.9"
  /// Whether it has windows, configurations and all-to-all (2.28), and windows give right numbers:
  /// before 2.28.7 several collectives of one group, and pieces of fewer than 8 bytes, could give wrong ones
  /// (its release notes).
  [[nodiscard]] bool has_ways() const {
    return version >= kRightWindows && comm_init_rank_config != nullptr && all_to_all != nullptr &&
           mem_alloc != nullptr && mem_free != nullptr && window_register != nullptr &&
           window_deregister != nullptr;
  }

  /// Throws core::Unavailable "NCCL: WHAT: its words" unless the result is success; core::OutOfMemory where
  /// they say so.
  void check(nccl::Result result, std::string_view what) const;
};

/// Throws core::Unavailable where it is not here.
const NcclLibrary& nccl_library();

}  // namespace rooflm::backends::cuda
