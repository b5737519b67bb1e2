// Copies of bf16 tensors in fp8 and their scales (program/fp8.h). Launchers only submit. They throw
// std::runtime_error when the launch is refused.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// What is cast.
enum class Fp8Source : std::uint8_t {
  tensor,           ///< x [rows, cols]
  swiglu,           ///< of h [rows, 2 cols], rounded to bf16
  swiglu_backward,  ///< of dy [rows, cols / 2] and h [rows, cols], rounded to bf16
};

/// What a cast reads and writes: x as `source` says; its copies [rows, cols] and [cols, rows], either of
/// which may be null; the slot. Rows and columns (and half of them for a gradient of swiglu) are multiples of
/// 16, addresses of 16 bytes.
struct Fp8Cast {
  std::int64_t rows = 0, cols = 0;
  Fp8Source source = Fp8Source::tensor;
  const void *x = nullptr, *h = nullptr, *dy = nullptr;
  void* as_stored = nullptr;
  void* transposed = nullptr;
  float* slot = nullptr;
};

/// Forgets what is in the slot.
void launch_fp8_reset(Stream stream, float* slot);

/// slot.amax = max(slot.amax, the largest |x|), for a slot without a scale; nothing for others. Reads x.
void launch_fp8_amax(Stream stream, const Fp8Cast& cast);

/// Copies of x times the slot's scale, rounded to nearest even and saturated, as e4m3 or e5m2; slot.amax as
/// launch_fp8_amax, for every slot. A slot without a scale gets the one that follows from its amax.
void launch_fp8_cast(Stream stream, const Fp8Cast& cast, bool is_e5m2);

/// fp8_next_scale for `slots` slots, every third of which is that of a gradient.
void launch_fp8_scales(Stream stream, std::int64_t slots, bool e5m2_gradients, float* state);

}  // namespace rooflm::backends::cuda
