// fp8 copies of bf16 tensors, and their scales (program/fp8.h). Launchers only submit. They throw
// std::runtime_error if a launch fails.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// The tensor that is cast.
enum class Fp8Source : std::uint8_t {
  tensor,           ///< x [rows, cols]
  swiglu,           ///< swiglu(h), h [rows, 2 cols], rounded to bf16
  swiglu_backward,  ///< gradient of swiglu from dy [rows, cols / 2] and h [rows, cols], rounded to bf16
};

/// Operands of a cast: x as `source` says; its copies [rows, cols] and [cols, rows], either of which may be
/// null; the slot. Rows and columns (and half the columns for swiglu_backward) are multiples of 16, addresses
/// 16-byte aligned.
struct Fp8Cast {
  std::int64_t rows = 0, cols = 0;
  Fp8Source source = Fp8Source::tensor;
  const void *x = nullptr, *h = nullptr, *dy = nullptr;
  void* as_stored = nullptr;
  void* transposed = nullptr;
  float* slot = nullptr;
};

/// Clears the slot.
void launch_fp8_reset(Stream stream, float* slot);

/// If the slot has no scale: slot.amax = max(slot.amax, max |x|). Otherwise does nothing. Reads x.
void launch_fp8_amax(Stream stream, const Fp8Cast& cast);

/// Stores x * scale, rounded to nearest even and saturated, as e4m3 or e5m2; and updates slot.amax as
/// launch_fp8_amax, but for every slot. A slot without a scale gets one from its amax.
void launch_fp8_cast(Stream stream, const Fp8Cast& cast, bool is_e5m2);

/// fp8_next_scale for `slots` slots; every third slot is that of a gradient.
void launch_fp8_scales(Stream stream, std::int64_t slots, bool e5m2_gradients, float* state);

}  // namespace rooflm::backends::cuda
