// Cross entropy over rows of logits, its gradient, and the mean over rows.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// `rows` rows that lie `cols` elements apart, of which the first `valid` take part.
struct LossShape {
  std::int64_t rows = 0, cols = 0, valid = 0;
};

/// lse[r] = log sum over v < valid of exp(logits[r, v]); losses[r] = lse[r] - logits[r, targets[r]], in nats.
/// A row whose target is negative has loss 0; a target from `valid` on gives NaN, and *bad_id, unless null,
/// becomes
/// 1. logits fp32, bf16 or fp16, `dtype`; targets int32 [rows]; losses and lse fp32 [rows].
/// Only submits; throws core::Unavailable for another dtype, std::runtime_error when the launch is refused.
void launch_cross_entropy(Stream stream, core::DType dtype, const LossShape& shape, const void* logits,
                          const std::int32_t* targets, float* losses, float* lse,
                          std::int32_t* bad_id = nullptr);

/// dlogits[r, v] = (exp(logits[r, v] - lse[r]) - (v == targets[r])) * grad_scale, times the scale of the
/// state `loss_scale` (program/loss_scale.h) unless that is null; 0 for v >= valid and in rows whose target
/// is negative. dlogits may be logits.
void launch_cross_entropy_backward(Stream stream, core::DType dtype, const LossShape& shape,
                                   const void* logits, const std::int32_t* targets, const float* lse,
                                   float grad_scale, void* dlogits, const float* loss_scale = nullptr);

/// Kernels that launch_cross_entropy_with_gradient launches for aligned logits on the current device: one
/// where a row fits into shared memory, otherwise two.
std::int64_t cross_entropy_with_gradient_launches(core::DType dtype, const LossShape& shape);

/// Both: losses and lse of launch_cross_entropy, then dlogits of launch_cross_entropy_backward, the same
/// bits. Rows that fit into shared memory are read once.
void launch_cross_entropy_with_gradient(Stream stream, core::DType dtype, const LossShape& shape,
                                        const void* logits, const std::int32_t* targets, float grad_scale,
                                        float* losses, float* lse, void* dlogits,
                                        const float* loss_scale = nullptr, std::int32_t* bad_id = nullptr);

/// *loss (+)= weight * sum of losses, summed in double and in a fixed order; added to with `accumulate`.
void launch_mean(Stream stream, std::int64_t count, const float* losses, double weight, bool accumulate,
                 float* loss);

}  // namespace rooflm::backends::cuda
