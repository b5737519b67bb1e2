// Cross entropy over rows of logits, its gradient, and the mean over rows.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// Rows of logits with stride `cols`; the first `valid` columns are the vocabulary, the rest is padding.
struct LossShape {
  std::int64_t rows = 0, cols = 0, valid = 0;
};

///   lse[r] = log sum over v < valid of exp(logits[r, v]),  losses[r] = lse[r] - logits[r, targets[r]], in
///   nats
/// logits [rows, cols] fp32, bf16 or fp16, `dtype`; targets int32 [rows]; losses and lse fp32 [rows]. A row
/// with a negative target has loss 0. A target >= valid gives NaN and sets *bad_id to 1 (unless null). Only
/// submits. Throws core::Unavailable for another dtype, std::runtime_error if the launch fails.
void launch_cross_entropy(Stream stream, core::DType dtype, const LossShape& shape, const void* logits,
                          const std::int32_t* targets, float* losses, float* lse,
                          std::int32_t* bad_id = nullptr);

///   dlogits[r, v] = (exp(logits[r, v] - lse[r]) - (v == targets[r])) * grad_scale
/// times the scale of the state `loss_scale` (program/loss_scale.h) unless that is null; 0 for v >= valid and
/// in rows with a negative target. dlogits may be logits.
void launch_cross_entropy_backward(Stream stream, core::DType dtype, const LossShape& shape,
                                   const void* logits, const std::int32_t* targets, const float* lse,
                                   float grad_scale, void* dlogits, const float* loss_scale = nullptr);

/// Number of kernels that launch_cross_entropy_with_gradient launches for aligned logits on the current
/// device: one if a row fits in shared memory (and, in 16 bits, 80 KB of registers), otherwise two.
std::int64_t cross_entropy_with_gradient_launches(core::DType dtype, const LossShape& shape);

/// launch_cross_entropy, then launch_cross_entropy_backward, with the same bits. Rows that fit are
/// read once.
void launch_cross_entropy_with_gradient(Stream stream, core::DType dtype, const LossShape& shape,
                                        const void* logits, const std::int32_t* targets, float grad_scale,
                                        float* losses, float* lse, void* dlogits,
                                        const float* loss_scale = nullptr, std::int32_t* bad_id = nullptr);

/// *loss (+)= weight * sum of losses [count], in double and in a fixed order; += with `accumulate`.
void launch_mean(Stream stream, std::int64_t count, const float* losses, double weight, bool accumulate,
                 float* loss);

}  // namespace rooflm::backends::cuda
