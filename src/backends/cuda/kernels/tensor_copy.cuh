// Hopper's copies of tiles between global and shared memory, and the barriers in shared memory that count
// them.
//
// A barrier completes a phase when as many arrivals have come as it was made for, and all bytes that were
// announced. Phases alternate 0, 1, 0, ...; waiting for phase 1 of a new barrier does not block.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/kernels/mma.cuh"

namespace rooflm::backends::cuda {

/// One barrier in shared memory, by its address there.
class PhaseBarrier {
 public:
  __device__ explicit PhaseBarrier(unsigned address) : address_(address) {}

  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals) : "memory");
  }
  __device__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }
  /// Arrives, and lets the phase wait for so many bytes of copies.
  __device__ void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_), "r"(bytes)
                 : "memory");
  }
  __device__ bool has_completed(unsigned phase) const {
    unsigned done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(address_), "r"(phase)
        : "memory");
    return done != 0;
  }
  [[nodiscard]] __device__ unsigned address() const { return address_; }

 private:
  unsigned address_;
};

/// Makes new barriers known to the copy engine; a barrier of the block comes after it.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// A box of `map` from column, row, batch on to shared memory; its bytes are counted by `barrier`.
__device__ inline void copy_box(unsigned to, const CUtensorMap& map, int column, int row, int batch,
                                PhaseBarrier barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier.address()), "r"(column), "r"(row), "r"(batch)
      : "memory");
}

/// `bytes`, a multiple of 16, from global to shared memory.
__device__ inline void copy_bytes(unsigned to, const void* from, int bytes, PhaseBarrier barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier.address())
      : "memory");
}

/// Shared to global memory: stores, or adds fp32.
__device__ inline void store_bytes(void* to, unsigned from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
__device__ inline void add_floats(float* to, unsigned from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(from), "r"(bytes)
               : "memory");
}
/// What this thread has stored or added since the last time is a group of its own.
__device__ inline void group_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until shared memory of this thread's stores may be written again.
__device__ inline void await_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// Waits until this thread's stores are in global memory.
__device__ inline void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Orders copies of the engine before and after ordinary accesses.
__device__ inline void fence_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ inline int load_acquire(const int* from) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void add_release(int* to, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/// Barrier `id` of so many threads of a block.
template <int kId, int kThreads>
__device__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

/// Registers per thread of this warp group from here on.
template <int kCount>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Four 8 x 8 matrices to shared memory, as load_matrices reads them.
__device__ inline void store_matrices(unsigned row, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

}  // namespace rooflm::backends::cuda
