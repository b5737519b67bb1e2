// Sums and maxima over the threads of a warp and of a block, in a fixed order.
#pragma once

namespace rooflm::backends::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kMostWarps = 32;

template <class T>
__device__ T warp_sum(T x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

/// The sum over the block, returned to every thread. The block has whole warps, at most 32; all threads must
/// call it.
template <class T>
__device__ T block_sum(T x) {
  __shared__ T sums[kMostWarps];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  x = warp_sum(x);
  if (warps == 1) return x;
  __syncthreads();  // earlier sums have been read
  if (lane == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? sums[lane] : T{});
}

/// Two sums at once.
__device__ inline float2 block_sum(float2 x) {
  __shared__ float2 sums[kMostWarps];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  x = {warp_sum(x.x), warp_sum(x.y)};
  if (warps == 1) return x;
  __syncthreads();
  if (lane == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = lane < warps ? sums[lane] : float2{0, 0};
  return {warp_sum(x.x), warp_sum(x.y)};
}

/// Online log-sum-exp: log(sum) + greatest of the numbers added so far.
struct LogSumExp {
  float greatest = -INFINITY;
  float sum = 0;

  /// The same bits whichever of the two is the other: lanes that merge each other's numbers must not differ.
  /// A fused multiply-add would round one product only.
  __device__ void merge(const LogSumExp& other) {
    const float most = fmaxf(greatest, other.greatest);
    if (most == -INFINITY) return;  // both are empty
    sum = __fadd_rn(__fmul_rn(sum, __expf(greatest - most)),
                    __fmul_rn(other.sum, __expf(other.greatest - most)));
    greatest = most;
  }
  __device__ float value() const { return greatest + logf(sum); }
};

__device__ inline LogSumExp warp_merge(LogSumExp x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x.merge({__shfl_xor_sync(kAllLanes, x.greatest, step), __shfl_xor_sync(kAllLanes, x.sum, step)});
  }
  return x;
}

/// Merges the threads of a block; every thread gets the result.
__device__ inline LogSumExp block_merge(LogSumExp x) {
  __shared__ float greatest[kMostWarps];
  __shared__ float sums[kMostWarps];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  x = warp_merge(x);
  __syncthreads();
  if (lane == 0) {
    greatest[threadIdx.x / kWarp] = x.greatest;
    sums[threadIdx.x / kWarp] = x.sum;
  }
  __syncthreads();
  return warp_merge(lane < warps ? LogSumExp{greatest[lane], sums[lane]} : LogSumExp{});
}

}  // namespace rooflm::backends::cuda
