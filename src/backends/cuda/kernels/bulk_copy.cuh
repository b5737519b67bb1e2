// Hopper's bulk copies between global and shared memory: one thread orders thousands of bytes, a barrier in
// shared memory says when they are there. Addresses and sizes are multiples of 16.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/mma.cuh"

namespace rooflm::backends::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// Counts bytes that are to arrive. Lies in shared memory; one thread orders, all may wait.
class Arrivals {
 public:
  __device__ void init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&state_)) : "memory");
  }
  /// After init, before other threads or copies use it.
  __device__ static void publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ void expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state_)),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void fetch(void* to, const void* from, unsigned bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&state_))
        : "memory");
  }
  /// Waits for what was expected in round `round`, counted from 0.
  __device__ void wait(unsigned round) {
    unsigned done = 0;
    while (done == 0) {
      asm volatile(
          "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, "
          "p;\n}\n"
          : "=r"(done)
          : "r"(shared_address(&state_)), "r"(round & 1U)
          : "memory");
    }
  }

 private:
  alignas(8) std::uint64_t state_;
};

/// What this thread wrote to shared memory is there for bulk stores that are ordered after a barrier.
__device__ inline void publish_to_bulk_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void bulk_store(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
/// All stores that this thread ordered since the last call are one group.
__device__ inline void close_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until all groups but the last kLeft have read what they store.
template <int kLeft>
__device__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}
/// Waits until all groups are in global memory.
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#endif

}  // namespace rooflm::backends::cuda
