// AdamW on one number, and how masters in halves are put together and taken apart: what all kernels that
// update share, so that the same bits come out of each.
#pragma once

#include "backends/cuda/kernels/optimizer.h"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// What gradients are multiplied by: clipping, NaN for NaN, and the inverse of the loss scale.
__device__ inline float factor_of(const UpdateStep& step) {
  const float inverse_scale = step.scaled ? step.hyper[3] : 1.0F;
  if (step.norm == nullptr) return inverse_scale;
  const float ratio = step.max_norm / (*step.norm + 1e-6F);
  return ratio >= 1.0F ? inverse_scale : ratio * inverse_scale;
}

__device__ inline bool is_skipped(const UpdateStep& step) { return step.scaled && step.hyper[3] == 0.0F; }

/// The numbers of a step, worked out once per thread.
struct AdamW {
  float kept, rate, inverse2, factor, beta1, beta2, eps;

  __device__ explicit AdamW(const UpdateStep& step)
      : kept(1.0F - step.hyper[0] * step.weight_decay),
        rate(step.hyper[0] / step.hyper[1]),
        inverse2(1.0F / step.hyper[2]),
        factor(factor_of(step)),
        beta1(step.beta1),
        beta2(step.beta2),
        eps(step.eps) {}

  __device__ void update(float& p, float gradient, float& m, float& v) const {
    const float g = factor * gradient;
    m = beta1 * m + (1.0F - beta1) * g;
    v = beta2 * v + (1.0F - beta2) * (g * g);
    p = kept * p - rate * m / (sqrtf(inverse2 * v) + eps);
  }
};

/// Two numbers from the upper and the lower halves of both.
__device__ inline float2 join_halves(unsigned upper, unsigned lower) {
  const auto whole = [](unsigned high, unsigned low) {  // the lower half has a sign
    return __uint_as_float((high << 16) + static_cast<unsigned>(static_cast<int>(static_cast<short>(low))));
  };
  return {whole(upper & 0xffffU, lower & 0xffffU), whole(upper >> 16, lower >> 16)};
}

/// The halves of two numbers, as core::Halves has them: x the upper, y the lower ones.
__device__ inline uint2 split_halves(float first, float second) {
  const auto bits = [](float x) { return isnan(x) ? 0x7fc00000U : __float_as_uint(x); };
  const unsigned a = bits(first);
  const unsigned b = bits(second);
  return {((a + 0x8000U) >> 16) | ((b + 0x8000U) >> 16) << 16, (a & 0xffffU) | b << 16};
}

}  // namespace rooflm::backends::cuda
