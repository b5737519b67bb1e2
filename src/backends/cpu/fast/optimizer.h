// Parameter updates in one pass over memory: AdamW, SGD, and the norm for clipping.
#pragma once

#include <concepts>
#include <cstdint>

#include "backends/cpu/fast/storage.h"
#include "core/moving_average.h"

namespace rooflm::backends::cpu {

/// Settings of one AdamW step (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019).
struct AdamWStep {
  float lr = 0;
  core::MovingAverage beta1{0.9};
  core::MovingAverage beta2{0.999};
  float eps = 1e-8F;
  float weight_decay = 0;
  float bias_correction1 = 1;  ///< 1 - beta1^t
  float bias_correction2 = 1;  ///< 1 - beta2^t
  float grad_scale = 1;        ///< multiplies the gradient first: clipping, the inverse of the loss scale
};

/// Addresses of n weights that an update changes in place.
template <Half H>
struct WholeWeights {
  float* p;
  H* copy = nullptr;  ///< receives the new weights rounded, ties to even; null: none
};
template <Half H>
struct HalvedWeights {
  std::uint16_t* upper;  ///< core::Halves of each weight, in H and the rest
  std::uint16_t* lower;
};
template <class W>
concept WeightMemory =
    std::same_as<W, WholeWeights<core::Bf16>> || std::same_as<W, WholeWeights<core::F16>> ||
    std::same_as<W, HalvedWeights<core::Bf16>> || std::same_as<W, HalvedWeights<core::F16>>;

/// One AdamW update of n elements, in place:
///   g' = g * grad_scale;  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2
///   p  = p (1 - lr weight_decay) - lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
/// Weights in halves get the same fp32 values as whole ones (core/halves.h). Gradients are fp32 or as H.
/// Traffic per element: reads 12 bytes and the gradient, writes 12 bytes, and 2 more for a copy.
template <WeightMemory W, GradientStorage G>
[[gnu::noipa]] void adamw_update(const AdamWStep& step, std::int64_t n, W weights, float* m, float* v,
                                 const G* g);

/// Settings of one SGD step.
struct SgdStep {
  float lr = 0;
  float weight_decay = 0;
  float grad_scale = 1;
};

/// One SGD update of n elements, in place:
///   p -= lr (g * grad_scale + weight_decay p)
template <WeightMemory W, GradientStorage G>
[[gnu::noipa]] void sgd_update(const SgdStep& step, std::int64_t n, W weights, const G* g);

/// Sum of g[i]^2 in double; the order of summation does not depend on the thread count. NaN and inf
/// propagate.
template <GradientStorage G>
[[gnu::noipa]] double sum_of_squares(std::int64_t n, const G* g);

}  // namespace rooflm::backends::cpu
