// Hopper's copies of tiles from global to shared memory, and the barriers in shared memory that count them.
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
