// What rooflm calls of NCCL, which it opens when it runs and whose header Debian does not have: the types,
// constants and signatures of nccl.h, version 2 (https://github.com/NVIDIA/nccl, src/nccl.h.in), which have
// been the same since 2.10.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
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

using GetVersion = Result(int*);
using GetUniqueId = Result(UniqueId*);
using CommInitRank = Result(Comm*, int ranks, UniqueId, int rank);
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
using Reduce = Result(const void* from, void* to, std::size_t count, DataType, RedOp, int root, Comm,
                      cudaStream_t);

}  // namespace rooflm::backends::cuda::nccl
