// What rooflm calls of NCCL, which it opens when it runs and whose header Debian does not have: the types,
// constants and signatures of nccl.h, version 2 (https://github.com/NVIDIA/nccl, src/nccl.h.in), which have
// been the same since 2.10; of windows and configurations, since 2.28.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <climits>
#include <cstddef>

namespace rooflm::backends::cuda::nccl {

using Comm = struct ncclComm*;  ///< ncclComm_t
using Result = int;             ///< ncclResult_t
using DataType = int;           ///< ncclDataType_t
using RedOp = int;              ///< ncclRedOp_t

/// ncclUniqueId, which is passed by value.
struct UniqueId {
  std::array<char, 128> internal;
};

inline constexpr Result kSuccess = 0;     ///< ncclSuccess
inline constexpr Result kInProgress = 7;  ///< ncclInProgress
inline constexpr DataType kInt8 = 0, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9;
inline constexpr RedOp kSum = 0;  ///< ncclSum

/// ncclConfig_t of 2.28; later versions append to it, and go by its size.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22800;
  static constexpr int kUnset = INT_MIN;  ///< NCCL_CONFIG_UNDEF_INT
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
  int channels_per_net_peer = kUnset;
  int nvlink_centric_sched = kUnset;
};
inline constexpr int kCtaPolicyZero = 2;    ///< NCCL_CTA_POLICY_ZERO: no blocks where copies do
inline constexpr int kWindowSymmetric = 1;  ///< NCCL_WIN_COLL_SYMMETRIC
using Window = struct ncclWindow*;          ///< ncclWindow_t

using GetVersion = Result(int*);
using GetUniqueId = Result(UniqueId*);
using CommInitRank = Result(Comm*, int ranks, UniqueId, int rank);
using CommInitRankConfig = Result(Comm*, int ranks, UniqueId, int rank, Config*);
using CommDestroy = Result(Comm);
using CommAbort = Result(Comm);
using CommGetAsyncError = Result(Comm, Result*);
using GetErrorString = const char*(Result);
using GetLastError = const char*(Comm);
using Group = Result();
using AllReduce = Result(const void* from, void* to, std::size_t count, DataType, RedOp, Comm, cudaStream_t);
/// `count`: of a part.
using AllGather = Result(const void* from, void* to, std::size_t count, DataType, Comm, cudaStream_t);
using ReduceScatter = Result(const void* from, void* to, std::size_t count, DataType, RedOp, Comm,
                             cudaStream_t);
using Broadcast = Result(const void* from, void* to, std::size_t count, DataType, int root, Comm,
                         cudaStream_t);
using Send = Result(const void* from, std::size_t count, DataType, int peer, Comm, cudaStream_t);
using Recv = Result(void* to, std::size_t count, DataType, int peer, Comm, cudaStream_t);
/// `count`: of what goes to each rank.
using AllToAll = Result(const void* from, void* to, std::size_t count, DataType, Comm, cudaStream_t);
using MemAlloc = Result(void** data, std::size_t bytes);
using MemFree = Result(void* data);
/// All ranks call it, with memory of the same size. A window of nullptr: ranks cannot reach into it.
using CommWindowRegister = Result(Comm, void* data, std::size_t bytes, Window*, int flags);
using CommWindowDeregister = Result(Comm, Window);
using Reduce = Result(const void* from, void* to, std::size_t count, DataType, RedOp, int root, Comm,
                      cudaStream_t);

}  // namespace rooflm::backends::cuda::nccl
