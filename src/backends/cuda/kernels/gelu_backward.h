// The gradient of GELU, with what can be had on the way.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// dx = dy * gelu'(x), all [rows, cols] of `dtype` (fp32, bf16 or fp16; the arithmetic is fp32); dx may be dy
/// or x.
struct GeluBackward {
  std::int64_t rows = 0, cols = 0;
  const void* dy = nullptr;
  const void* x = nullptr;
  void* dx = nullptr;
  void* y = nullptr;  ///< unless null: gelu(x), as launch_gelu makes it
  /// Unless null: db[c] (+)= sum over r of dx[r, c], with the bits of launch_bias_backward.
  float* db = nullptr;
  bool accumulate = false;    ///< += instead of =
  void* workspace = nullptr;  ///< with db: bias_backward_workspace_bytes, aligned to 16
};

/// Only submits. Throws core::Unavailable for another dtype, std::runtime_error if a launch fails.
void launch_gelu_backward(Stream stream, core::DType dtype, const GeluBackward& gelu);

}  // namespace rooflm::backends::cuda
