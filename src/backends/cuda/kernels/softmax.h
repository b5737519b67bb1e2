// Causal softmax over score matrices, and its gradient, for attention that is lowered to matmuls.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

///   p[r, j] = exp(scale * s[r, j]) / sum over j' <= i of exp(scale * s[r, j']),  0 for j > i,  i = r mod seq
/// s and p [rows, seq] hold matrices of seq x seq. fp32 or bf16, `dtype`; arithmetic in fp32. p may be s.
/// Only submits. Throws core::Unavailable for another dtype, std::runtime_error if the launch fails.
void launch_causal_softmax(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq, float scale,
                           const void* s, void* p);

///   ds[r, j] = scale * p[r, j] * (dp[r, j] - sum over j' <= i of p[r, j'] dp[r, j']),  0 for j > i
/// ds may be dp or p.
void launch_causal_softmax_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq,
                                    float scale, const void* dp, const void* p, void* ds);

}  // namespace rooflm::backends::cuda
