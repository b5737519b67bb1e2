// The scale of a loss-scaling state, for kernels that apply it.
#pragma once

#include "program/loss_scale.h"

namespace rooflm::backends::cuda {

/// The scale of a state; 1 if there is none.
__device__ inline float scale_of(const float* state) {
  if (state == nullptr) return 1.0F;
  return ldexpf(1.0F, program::kFirstScaleExponent + static_cast<int>(state[program::kScaleExponent]));
}

}  // namespace rooflm::backends::cuda
