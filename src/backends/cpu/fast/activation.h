// GELU and SwiGLU, forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) for n elements. y may alias x.
template <Storage S>
[[gnu::noipa]] void gelu_forward(std::int64_t n, const S* x, S* y);

/// dx = dy * gelu'(x) with x the input of gelu_forward. dx may alias dy or x.
template <Storage S>
[[gnu::noipa]] void gelu_backward(std::int64_t n, const S* dy, const S* x, S* dx);

/// y[r, i] = silu(x[r, i]) * x[r, F + i] with x [rows, 2F] (gate first, then up), y [rows, F], F = width, and
/// silu(g) = g / (1 + exp(-g)). Nothing may alias.
template <Storage S>
[[gnu::noipa]] void swiglu_forward(std::int64_t rows, std::int64_t width, const S* x, S* y);

/// dx [rows, 2F] from dy [rows, F] and the input x [rows, 2F]. dx may alias x.
template <Storage S>
[[gnu::noipa]] void swiglu_backward(std::int64_t rows, std::int64_t width, const S* dy, const S* x, S* dx);

/// db[j] (+)= sum over rows of dy[r, j], dy [rows, cols], summed in fp32 in an order that does not depend on
/// the thread count. scratch: bias_backward_scratch_bytes.
std::size_t bias_backward_scratch_bytes(std::int64_t rows, std::int64_t cols);
template <Storage S>
[[gnu::noipa]] void bias_backward(std::int64_t rows, std::int64_t cols, const S* dy, float* db,
                                  bool accumulate, void* scratch);

/// y[i] = exp(x[i]); 2^x[i] for finite x[i] <= 0; and 1/(1+exp(-x[i])), as the kernels of this folder compute
/// them for results in S. Error for normal results: fp32 within 2 ulp (sigmoid 4); bf16 within a relative
/// 3e-6 + 1e-7 |x|. Overflow gives inf, underflow 0 or a subnormal. Run on the calling thread; y may alias x.
/// For tests.
template <Storage S>
[[gnu::noipa]] void exp_array(std::int64_t n, const float* x, float* y);
[[gnu::noipa]] void exp2_nonpositive_array(std::int64_t n, const float* x, float* y);
template <Storage S>
[[gnu::noipa]] void sigmoid_array(std::int64_t n, const float* x, float* y);

}  // namespace rooflm::backends::cpu
