// Dynamic loss scaling on the device: whether an update is made, and the next scale.
#pragma once

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// hyper' = hyper with the inverse of the state's scale in the last place, or 0 when norm is not finite;
/// norm' = norm / scale; the state goes on as program/loss_scale.h says. hyper, hyper' fp32 [4]; norm, norm'
/// fp32 [1]; state fp32 [kLossScaleState]. Only submits; throws std::runtime_error when the launch is
/// refused.
void launch_loss_scale(Stream stream, const float* hyper, const float* norm, float* state,
                       float* scaled_hyper, float* true_norm);

}  // namespace rooflm::backends::cuda
