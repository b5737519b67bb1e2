// A barrier of GPUs that map each other's memory: each rank writes the number of the barrier to all others,
// and waits until all of theirs have arrived.
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/peer_barrier.h"

namespace rooflm::backends::cuda {
namespace {

/// Reading host memory takes a microsecond, so it is not done each time.
constexpr unsigned kLooksPerStop = 256;

__device__ void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// A thread per rank. Numbers wrap around, so their difference is compared.
__global__ void peer_barrier(PeerBarrier barrier) {
  const int other = static_cast<int>(threadIdx.x);
  const unsigned round = *barrier.round + 1;
  __syncthreads();
  if (other == 0) *barrier.round = round;
  if (other < barrier.ranks && other != barrier.index) {
    __threadfence_system();
    store_release(barrier.arrivals[other] + barrier.index, round);
    const unsigned* arrival = barrier.arrivals[barrier.index] + other;
    for (unsigned looks = 1; static_cast<int>(load_acquire(arrival) - round) < 0; ++looks) {
      if (looks % kLooksPerStop == 0 && *barrier.stop != 0) break;
    }
  }
  __syncthreads();
}

}  // namespace

void launch_peer_barrier(Stream stream, const PeerBarrier& barrier) {
  peer_barrier<<<1, kMostPeers, 0, stream>>>(barrier);
  check_launch("peer_barrier");
}

}  // namespace rooflm::backends::cuda
