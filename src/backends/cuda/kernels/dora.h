// Magnitudes of adapters and the lengths of rows (program/ops/dora.cpp). Elements of matrices and rows are
// fp32, bf16 or fp16, norms, magnitudes and scales fp32. Launchers only submit. They throw std::runtime_error
// if a launch fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// squares[i] = sum of the squares of row i of w [n, width].
void launch_row_squares(Stream stream, core::DType dtype, std::int64_t n, std::int64_t width, const void* w,
                        float* squares);

/// Operands of inverse_norms: s [n], P [rank, stride] from the first of its n columns on, G [rank, rank], all
/// fp32, and B [n, rank].
struct InverseNorms {
  std::int64_t n = 0, rank = 0, stride = 0;
  float factor = 1;
  const float *squares = nullptr, *products = nullptr, *grams = nullptr;
  const void* b = nullptr;
  float* inverse = nullptr;
};
void launch_inverse_norms(Stream stream, core::DType dtype, const InverseNorms& norms);

/// z[at + i] = m[i] r[i] for i < n, elsewhere earlier z, which may be z itself, or 1 where it is null.
void launch_set_scales(Stream stream, std::int64_t width, std::int64_t at, std::int64_t n,
                       const float* earlier, const float* m, const float* r, float* z);
/// dm[i] (+)= dz[i] r[i] for i < n, += with `accumulate`.
void launch_set_scales_backward(Stream stream, std::int64_t n, const float* dz, const float* r, float* dm,
                                bool accumulate);

/// y[r, i] = x[r, i] z[i]; y may be x.
void launch_scale_columns(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                          const void* x, const float* z, void* y);

/// dx[r, i] = dy[r, i] z[i], which may be dy; dz[i] = sum over r of dy[r, i] x[r, i]. `workspace` has
/// bias_backward_workspace_bytes bytes, aligned to 16.
struct ScaleColumnsBackward {
  std::int64_t rows = 0, cols = 0;
  const void *dy = nullptr, *x = nullptr;
  const float* z = nullptr;
  void* dx = nullptr;
  float* dz = nullptr;
  void* workspace = nullptr;
};
void launch_scale_columns_backward(Stream stream, core::DType dtype, const ScaleColumnsBackward& scale);

}  // namespace rooflm::backends::cuda
