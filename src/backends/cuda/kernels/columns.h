// Parts of rows: what adapters add to them, and what gradients take out of them (program/ops/columns.cpp).
// Elements are fp32, bf16 or fp16. Launchers only submit. They throw std::runtime_error if a launch fails.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// Columns [at, at + n) of rows of `width`.
struct Columns {
  std::int64_t rows = 0, width = 0, at = 0, n = 0;
  float factor = 1;
};

/// z = x + factor y in the columns, z = x in the others. y [rows, n]; z may be x.
void launch_add_columns(Stream stream, core::DType dtype, const Columns& c, const void* x, const void* y,
                        void* z);
/// y [rows, n] = factor times the columns of x.
void launch_take_columns(Stream stream, core::DType dtype, const Columns& c, const void* x, void* y);

}  // namespace rooflm::backends::cuda
