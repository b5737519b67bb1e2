// A barrier of GPUs that map each other's memory.
#pragma once

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// As many GPUs as reach each other within a host.
inline constexpr int kMostPeers = 8;

struct PeerBarrier {
  int ranks = 1, index = 0;
  /// By rank: an array of kMostPeers numbers in that rank's memory; number i is written by rank i.
  unsigned* arrivals[kMostPeers] = {};
  unsigned* round = nullptr;                ///< in this rank's memory: how many barriers there were
  const volatile unsigned* stop = nullptr;  ///< in host memory: if it is not 0, nobody is waited for
};

/// Done when all ranks have begun it. What a rank wrote before it can be read by all after it. Only submits.
/// Throws std::runtime_error if the launch fails.
void launch_peer_barrier(Stream stream, const PeerBarrier& barrier);

}  // namespace rooflm::backends::cuda
