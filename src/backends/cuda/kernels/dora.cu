// Magnitudes of adapters and the lengths of rows.
#include <cfloat>

#include "backends/cuda/kernels/column_sums.cuh"
#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/dora.h"
#include "backends/cuda/kernels/elementwise.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kRowThreads = 256;

/// A block per row.
template <class T>
__global__ void __launch_bounds__(kRowThreads) row_squares(std::int64_t width, const T* w, float* squares) {
  const T* row = w + std::int64_t{blockIdx.x} * width;
  float sum = 0;
  for (std::int64_t k = threadIdx.x; k < width; k += kRowThreads) {
    const float x = to_float(row[k]);
    sum += x * x;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

/// A thread per row: b (2 P + factor G b).
template <class T>
__global__ void __launch_bounds__(kElementThreads) inverse_norms(InverseNorms norms, const T* b) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= norms.n) return;
  const T* row = b + i * norms.rank;
  float sum = 0;
  for (std::int64_t j = 0; j < norms.rank; ++j) {
    float quadratic = 0;
    for (std::int64_t k = 0; k < norms.rank; ++k)
      quadratic += norms.grams[j * norms.rank + k] * to_float(row[k]);
    sum += to_float(row[j]) * (2 * norms.products[j * norms.stride + i] + norms.factor * quadratic);
  }
  const float before = norms.squares[i];
  const float square = fmaxf(before + norms.factor * sum, fmaxf(1e-6F * before, FLT_MIN));
  norms.inverse[i] = 1 / sqrtf(square);
}

__global__ void __launch_bounds__(kElementThreads)
    set_scales(std::int64_t width, std::int64_t at, std::int64_t n, const float* earlier, const float* m,
               const float* r, float* z) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (c >= width) return;
  const bool is_own = c >= at && c < at + n;
  const float other = earlier == nullptr ? 1.0F : earlier[c];
  z[c] = is_own ? m[c - at] * r[c - at] : other;
}

__global__ void __launch_bounds__(kElementThreads)
    set_scales_backward(std::int64_t n, const float* dz, const float* r, float* dm, bool accumulate) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i < n) dm[i] = (accumulate ? dm[i] : 0.0F) + dz[i] * r[i];
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    scale_columns(std::int64_t rows, std::int64_t cols, bool aligned, const T* x, const float* z, T* y) {
  const Place place(own_pack(), cols);
  if (place.row >= rows) return;
  Pack values = load_pack(x + place.row * cols, place.col, cols, aligned);
  const Pack scales = load_pack(z, place.col, cols, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] *= scales[i];
  store_pack(y + place.row * cols, place.col, cols, aligned, values);
}

template <class T>
__global__ void __launch_bounds__(kSumThreads, kSumBlocksPerMultiprocessor)
    scale_columns_backward(std::int64_t rows, std::int64_t cols, bool aligned, const T* dy, const T* x,
                           const float* z, T* dx, float* sums) {
  struct Both {
    RawPack<T> dy, x;
  };
  constexpr int kAhead = 4 / static_cast<int>(sizeof(T));
  const std::int64_t col = std::int64_t{blockIdx.x} * kSumTile + threadIdx.x * kPack;  // of all packs below
  Pack scales{};
  if (col < cols) scales = load_pack(z, col, cols, aligned);
  sum_own_rows<kAhead>(
      rows, cols, aligned, sums,
      [=](std::int64_t at, std::int64_t end, bool whole) {
        return Both{load_raw_pack(dy, at, end, whole), load_raw_pack(x, at, end, whole)};
      },
      [=](const Both& both, std::int64_t at, std::int64_t end, bool whole) {
        const Pack d = unpack(both.dy);
        const Pack values = unpack(both.x);
        Pack scaled, products;
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          scaled[i] = d[i] * scales[i];
          products[i] = d[i] * values[i];
        }
        store_pack(dx, at, end, whole, scaled);
        return products;
      });
}

unsigned element_blocks(std::int64_t count, const char* what) {
  return grid_size(ceil_div(count, kElementThreads), what);
}

}  // namespace

void launch_row_squares(Stream stream, core::DType dtype, std::int64_t n, std::int64_t width, const void* w,
                        float* squares) {
  if (n == 0) return;
  with_element(dtype, "row_squares", [&]<class T>(T) {
    row_squares<<<grid_size(n, "row_squares"), kRowThreads, 0, stream>>>(width, static_cast<const T*>(w),
                                                                         squares);
  });
  check_launch("row_squares");
}

void launch_inverse_norms(Stream stream, core::DType dtype, const InverseNorms& norms) {
  if (norms.n == 0) return;
  with_element(dtype, "inverse_norms", [&]<class T>(T) {
    inverse_norms<<<element_blocks(norms.n, "inverse_norms"), kElementThreads, 0, stream>>>(
        norms, static_cast<const T*>(norms.b));
  });
  check_launch("inverse_norms");
}

void launch_set_scales(Stream stream, std::int64_t width, std::int64_t at, std::int64_t n,
                       const float* earlier, const float* m, const float* r, float* z) {
  set_scales<<<element_blocks(width, "set_scales"), kElementThreads, 0, stream>>>(width, at, n, earlier, m, r,
                                                                                  z);
  check_launch("set_scales");
}

void launch_set_scales_backward(Stream stream, std::int64_t n, const float* dz, const float* r, float* dm,
                                bool accumulate) {
  set_scales_backward<<<element_blocks(n, "set_scales_backward"), kElementThreads, 0, stream>>>(n, dz, r, dm,
                                                                                                accumulate);
  check_launch("set_scales_backward");
}

void launch_scale_columns(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                          const void* x, const float* z, void* y) {
  if (rows == 0) return;
  const bool aligned = cols % kPack == 0 && are_aligned({x, z, y});
  with_element(dtype, "scale_columns", [&]<class T>(T) {
    scale_columns<<<row_blocks(rows, cols, "scale_columns"), kElementThreads, 0, stream>>>(
        rows, cols, aligned, static_cast<const T*>(x), z, static_cast<T*>(y));
  });
  check_launch("scale_columns");
}

void launch_scale_columns_backward(Stream stream, core::DType dtype, const ScaleColumnsBackward& scale) {
  if (scale.rows == 0) return;
  const std::int64_t parts = partial_count(scale.rows, scale.cols);
  auto* sums = static_cast<float*>(scale.workspace);
  with_element(dtype, "scale_columns_backward", [&]<class T>(T) {
    const dim3 grid(grid_size(ceil_div(scale.cols, kSumTile), "scale_columns_backward"),
                    static_cast<unsigned>(parts));
    const bool aligned = scale.cols % kPack == 0 && are_aligned({scale.dy, scale.x, scale.z, scale.dx});
    scale_columns_backward<<<grid, dim3(kWarp, kSumLanes), 0, stream>>>(
        scale.rows, scale.cols, aligned, static_cast<const T*>(scale.dy), static_cast<const T*>(scale.x),
        scale.z, static_cast<T*>(scale.dx), sums);
  });
  check_launch("scale_columns_backward");
  launch_sum_partials(stream, parts, sums, {.cols = scale.cols, .out = {scale.dz}}, false);
}

}  // namespace rooflm::backends::cuda
