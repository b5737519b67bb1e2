// Sums over ranks that map each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cuda/kernels/peer_barrier.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// What lies at the same place in the memory of several ranks. `shift`: by rank, how many bytes after an
/// address of this rank that of the other is; 0 for this rank.
struct PeerPlaces {
  int ranks = 1;
  std::ptrdiff_t shift[kMostPeers] = {};
};

/// `count` elements in this rank's memory, and where their sum goes.
struct SummedTensor {
  std::int64_t count = 0;
  const void* from = nullptr;
  void* to = nullptr;
};

/// to = sum over ranks of from, in rank order in fp32, rounded to `dtype`; with `to_all` also at the same
/// place of all other ranks. Between barriers (peer_barrier.h). Only submits. Throws std::runtime_error if a
/// launch fails, core::Unavailable for dtypes other than fp32, bf16 and fp16.
void launch_peer_sum(Stream stream, core::DType dtype, std::span<const SummedTensor> tensors,
                     const PeerPlaces& peers, bool to_all);

}  // namespace rooflm::backends::cuda
