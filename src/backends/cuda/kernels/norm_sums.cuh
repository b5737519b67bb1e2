// Sums over the rows of a block for the gradients of norms: of its warps in registers, of dx in shared
// memory.
#pragma once

#include <cstddef>

#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {

constexpr int kRowsOfBlock = 4;  // where a row is one warp's

/// Sums of a block's warps, each of which had rows of its own, one warp after the other; the first has the
/// result.
template <int kPacks>
__device__ void add_warps(Pack (&sums)[kPacks]) {
  __shared__ float shared[kPacks * kPack][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int w = kRowsOfBlock - 1; w >= 0; --w) {
    __syncthreads();
    if (warp != w) continue;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (w < kRowsOfBlock - 1) sums[k][i] += shared[k * kPack + i][lane];
        shared[k * kPack + i][lane] = sums[k][i];
      }
    }
  }
}

/// Sums of dx over the rows of a thread, in shared memory: every thread has its own place.
template <int kPacks>
class DxSums {
 public:
  static std::size_t bytes(int threads) { return std::size_t{kPacks} * threads * sizeof(Pack); }

  __device__ void clear() {
    for (int i = 0; i < 2 * kPacks; ++i) place(i, threadIdx.x) = {0, 0, 0, 0};
  }
  template <class T>
  __device__ void add(int k, const Pack& dx) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float4& sum = place(2 * k + half, threadIdx.x);
      sum.x += rounded<T>(dx[4 * half]);
      sum.y += rounded<T>(dx[4 * half + 1]);
      sum.z += rounded<T>(dx[4 * half + 2]);
      sum.w += rounded<T>(dx[4 * half + 3]);
    }
  }
  /// Of this thread and, one after the other, those `step`, 2 * step, .. behind it.
  __device__ Pack total(int k, int step) const {
    Pack pack{};
    for (int thread = threadIdx.x; thread < static_cast<int>(blockDim.x); thread += step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 sum = place(2 * k + half, thread);
        pack[4 * half] += sum.x;
        pack[4 * half + 1] += sum.y;
        pack[4 * half + 2] += sum.z;
        pack[4 * half + 3] += sum.w;
      }
    }
    return pack;
  }

 private:
  __device__ static float4& place(int i, int thread) {
    extern __shared__ float4 places[];
    return places[i * static_cast<int>(blockDim.x) + thread];
  }
};

}  // namespace rooflm::backends::cuda
