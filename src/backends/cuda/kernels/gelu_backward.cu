// GELU's gradient: eight elements per thread, or tiles of columns whose sums are the bias' gradient.
#include "backends/cuda/kernels/column_sums.cuh"
#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/gelu.cuh"
#include "backends/cuda/kernels/gelu_backward.h"
#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

/// Stores dx and, unless y is null, gelu(x), from `at` to `end`. The pack of dx, as it is stored.
template <class T>
__device__ Pack gradient_of_pack(const Pack& d, const Pack& x, std::int64_t at, std::int64_t end, bool whole,
                                 T* dx, T* y) {
  Pack again, result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float s = gelu_sigmoid<T>(x[i]);
    again[i] = x[i] * s;
    result[i] = rounded<T>(d[i] * gelu_slope(x[i], s));
  }
  store_pack(dx, at, end, whole, result);
  if (y != nullptr) store_pack(y, at, end, whole, again);
  return result;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gelu_backward(std::int64_t count, bool aligned, const T* dy, const T* x, T* dx, T* y) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (first >= count) return;
  gradient_of_pack(load_pack(dy, first, count, aligned), load_pack(x, first, count, aligned), first, count,
                   aligned, dx, y);
}

template <class T>
__global__ void __launch_bounds__(kSumThreads, kSumBlocksPerMultiprocessor)
    gelu_backward_with_sums(std::int64_t rows, std::int64_t cols, bool aligned, const T* dy, const T* x,
                            T* dx, T* y, float* sums) {
  struct Both {
    RawPack<T> dy, x;
  };
  constexpr int kAhead = 4 / static_cast<int>(sizeof(T));
  sum_own_rows<kAhead>(
      rows, cols, aligned, sums,
      [=](std::int64_t at, std::int64_t end, bool whole) {
        return Both{load_raw_pack(dy, at, end, whole), load_raw_pack(x, at, end, whole)};
      },
      [=](const Both& both, std::int64_t at, std::int64_t end, bool whole) {
        return gradient_of_pack(unpack(both.dy), unpack(both.x), at, end, whole, dx, y);
      });
}

template <class T>
void launch(Stream stream, const GeluBackward& gelu) {
  const auto* dy = static_cast<const T*>(gelu.dy);
  const auto* x = static_cast<const T*>(gelu.x);
  auto* dx = static_cast<T*>(gelu.dx);
  auto* y = static_cast<T*>(gelu.y);
  const bool are_addresses_aligned = are_aligned({dy, x, dx, y});
  if (gelu.db == nullptr) {
    const std::int64_t count = gelu.rows * gelu.cols;
    const unsigned blocks = grid_size(ceil_div(count, std::int64_t{kThreads} * kPack), "gelu_backward");
    gelu_backward<<<blocks, kThreads, 0, stream>>>(count, are_addresses_aligned, dy, x, dx, y);
    return check_launch("gelu_backward");
  }
  const std::int64_t parts = partial_count(gelu.rows, gelu.cols);
  auto* sums = static_cast<float*>(gelu.workspace);
  const dim3 grid(grid_size(ceil_div(gelu.cols, kSumTile), "gelu_backward"), static_cast<unsigned>(parts));
  gelu_backward_with_sums<<<grid, dim3(kWarp, kSumLanes), 0, stream>>>(
      gelu.rows, gelu.cols, gelu.cols % kPack == 0 && are_addresses_aligned, dy, x, dx, y, sums);
  check_launch("gelu_backward");
  launch_sum_partials(stream, parts, sums, {.cols = gelu.cols, .out = {gelu.db}}, gelu.accumulate);
}

}  // namespace

void launch_gelu_backward(Stream stream, core::DType dtype, const GeluBackward& gelu) {
  if (gelu.rows == 0 || gelu.cols == 0) return;
  with_element(dtype, "gelu_backward", [&]<class T>(T) { launch<T>(stream, gelu); });
}

}  // namespace rooflm::backends::cuda
