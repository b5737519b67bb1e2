// layernorm and rmsnorm, with the residual addition, whose results are cast to fp8 (program/fp8.h) and stored
// as that alone. Launchers only submit. They throw core::Unavailable for rows longer than
// program::kFp8NormCols and std::runtime_error when the launch is refused.
#pragma once

#include "backends/cuda/kernels/norm.h"

namespace rooflm::backends::cuda {

/// As NormForward in bf16, with copies [rows, cols] and [cols, rows] of what it calls y, as e4m3, in its
/// place; either may be null. A bias makes it a layernorm. Rows and columns are multiples of 16, addresses of
/// 16 bytes.
struct NormFp8 {
  NormForward norm{};
  void* as_stored = nullptr;
  void* transposed = nullptr;
  float* slot = nullptr;
};

/// slot.amax = max(slot.amax, the largest |y|), for a slot without a scale; nothing for others. Stores
/// nothing else.
void launch_norm_fp8_amax(Stream stream, const NormFp8& args);

/// The bits of launch_layernorm or launch_rmsnorm followed by launch_fp8_cast of y.
void launch_norm_fp8(Stream stream, const NormFp8& args);

}  // namespace rooflm::backends::cuda
