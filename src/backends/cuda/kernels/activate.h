// activate of all kinds (program/activation.h), scale_cap, and their gradients.
//
// Activations are fp32, bf16 or fp16; the arithmetic is fp32. Launchers only submit. They throw
// core::Unavailable for another dtype and std::runtime_error if a launch fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"
#include "program/activation.h"

namespace rooflm::backends::cuda {

struct Activate {
  program::Activation kind{};
  bool is_gated = false;
  core::DType dtype{};
  std::int64_t rows = 0, width = 0;  // of y
  const float* weights = nullptr;    // [2] of xIELU
};

/// h [rows, width], gated [rows, 2 width] -> y [rows, width].
void launch_activate(Stream stream, const Activate& activate, const void* h, void* y);
/// dy, h -> dh, which may be h; of xIELU dweights [2] (+)= too, with a workspace of
/// activate_workspace_bytes.
void launch_activate_backward(Stream stream, const Activate& activate, const void* dy, const void* h,
                              void* dh, float* dweights, bool accumulate, float* workspace);
[[nodiscard]] std::size_t activate_workspace_bytes();

/// y = factor x or, with cap > 0, cap tanh(factor x / cap), in another dtype too; y may be x if it is the
/// same.
void launch_scale_cap(Stream stream, std::int64_t count, float factor, float cap, core::DType from,
                      const void* x, core::DType to, void* y);
/// dx = factor dy (1 - tanh(factor x / cap)^2); dx may be dy or x.
void launch_scale_cap_backward(Stream stream, core::DType dtype, std::int64_t count, float factor, float cap,
                               const void* dy, const void* x, void* dx);

}  // namespace rooflm::backends::cuda
