// Causal softmax over score matrices, and its gradient, for attention that is lowered to matmuls.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// Score matrices of `heads` one after another and their rules; rows count from first_row on.
struct SoftmaxRules {
  ScoreRules rules{};
  std::int64_t heads = 1, first_row = 0;
  Sinks sinks{};
};

///   p[r, j] = exp(scale * s[r, j]) / sum over j' <= i of exp(scale * s[r, j']),  0 for j > i,  i = r mod seq
/// or as `rules` say. s and p [rows, seq] hold matrices of seq x seq. fp32 or bf16, `dtype`; arithmetic in
/// fp32. p may be s.
/// Only submits. Throws core::Unavailable for another dtype, std::runtime_error if the launch fails.
void launch_causal_softmax(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq, float scale,
                           const void* s, void* p, const SoftmaxRules& rules = {});

///   ds[r, j] = scale * p[r, j] * (dp[r, j] - sum over j' <= i of p[r, j'] dp[r, j']),  0 for j > i
/// ds may be dp or p. Scores `s` are read if there is a cap, whose derivative ds has, too. sink_rows [rows],
/// if not null, gets what each row gives to the negative gradient of its head's sink.
void launch_causal_softmax_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq,
                                    float scale, const void* dp, const void* p, void* ds,
                                    const SoftmaxRules& rules = {}, const void* s = nullptr,
                                    float* sink_rows = nullptr);

}  // namespace rooflm::backends::cuda
