// Index of the largest element of each row: one block per row.
#include <cstdint>

#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kArgmaxThreads = 1024;

/// A value and its index; ties go to the lower index.
struct Placed {
  float value = -INFINITY;
  int place = 0x7fffffff;

  __device__ void take(float other, int at) {
    if (other > value || (other == value && at < place)) {
      value = other;
      place = at;
    }
  }
};

__device__ Placed warp_largest(Placed x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, x.value, step);
    const int place = __shfl_xor_sync(kAllLanes, x.place, step);
    x.take(value, place);
  }
  return x;
}

/// Block b computes y[b] of x [rows, cols]. A row without an element above -inf gets index 0.
__global__ void __launch_bounds__(kArgmaxThreads)
    argmax(std::int64_t cols, std::int64_t valid, const float* x, std::int32_t* y) {
  __shared__ float values[kMostWarps];
  __shared__ int places[kMostWarps];
  const float* row = x + std::int64_t{blockIdx.x} * cols;
  Placed largest;
  for (std::int64_t i = threadIdx.x; i < valid; i += kArgmaxThreads) {
    if (row[i] > largest.value) largest.take(row[i], static_cast<int>(i));
  }
  largest = warp_largest(largest);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane == 0) {
    values[warp] = largest.value;
    places[warp] = largest.place;
  }
  __syncthreads();
  if (warp != 0) return;
  largest.value = values[lane];  // one warp per lane
  largest.place = places[lane];
  largest = warp_largest(largest);
  if (lane == 0) y[blockIdx.x] = largest.value == -INFINITY ? 0 : largest.place;
}

}  // namespace

void launch_argmax(Stream stream, std::int64_t rows, std::int64_t cols, std::int64_t valid, const float* x,
                   std::int32_t* y) {
  constexpr const char* kWhat = "argmax";
  argmax<<<grid_size(rows, kWhat), kArgmaxThreads, 0, stream>>>(cols, valid, x, y);
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
