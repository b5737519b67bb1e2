// layernorm and rmsnorm, with the residual addition, whose results are stored only as fp8 (program/fp8.h).
// Launchers only submit. They throw core::Unavailable for rows longer than program::kFp8NormCols and
// std::runtime_error if the launch fails.
#pragma once

#include "backends/cuda/kernels/norm/norm.h"

namespace rooflm::backends::cuda {

/// As NormForward in bf16, except that y is stored as e4m3 copies [rows, cols] and [cols, rows]; either may
/// be null. A bias makes it a layernorm. Rows and columns are multiples of 16, addresses 16-byte aligned.
struct NormFp8 {
  NormForward norm{};
  void* as_stored = nullptr;
  void* transposed = nullptr;
  float* slot = nullptr;
};

/// If the slot has no scale: slot.amax = max(slot.amax, max |y|). Otherwise does nothing. Stores nothing
/// else.
void launch_norm_fp8_amax(Stream stream, const NormFp8& args);

/// Same bits as launch_layernorm or launch_rmsnorm followed by launch_fp8_cast of y.
void launch_norm_fp8(Stream stream, const NormFp8& args);

}  // namespace rooflm::backends::cuda
