// Elementwise kernels: add, cast, gelu, swiglu and its gradient, bias_add.
//
// Activations are fp32 or bf16, `dtype`; the arithmetic is fp32. Launchers only submit. They throw
// core::Unavailable for another dtype and std::runtime_error when the launch is refused.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// z = x + y, `count` elements each; z may be x or y.
void launch_add(Stream stream, core::DType dtype, std::int64_t count, const void* x, const void* y, void* z);

/// y = (y +) (x[0] + x[1] + ...): x holds `parts` consecutive arrays of `count` elements, added in that order
/// in fp32; the sum is rounded before y is added. y may be one of them.
void launch_sum_parts(Stream stream, core::DType dtype, std::int64_t count, int parts, const void* x, void* y,
                      bool accumulate);

/// y = x in another dtype, round to nearest even; no aliasing unless the dtypes are the same.
void launch_cast(Stream stream, std::int64_t count, core::DType from, const void* x, core::DType to, void* y);

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); y may be x.
void launch_gelu(Stream stream, core::DType dtype, std::int64_t count, const void* x, void* y);

/// y[r, f] = silu(h[r, f]) * h[r, F + f], silu(g) = g / (1 + exp(-g)): h [rows, 2F] -> y [rows, F].
void launch_swiglu(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t width, const void* h,
                   void* y);

/// dy [rows, F], h [rows, 2F] -> dh [rows, 2F]: d gate = dy * up * s * (1 + gate * (1 - s)), s =
/// sigmoid(gate), d up = dy * silu(gate). dh may be h. `width` is F. y [rows, F], unless null, is swiglu of
/// h, as launch_swiglu makes it.
void launch_swiglu_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t width,
                            const void* dy, const void* h, void* dh, void* y);

/// y[r, n] = x[r, n] + bias[n], x and y [rows, cols], bias fp32 [cols]; y may be x.
void launch_bias_add(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols, const void* x,
                     const float* bias, void* y);

}  // namespace rooflm::backends::cuda
