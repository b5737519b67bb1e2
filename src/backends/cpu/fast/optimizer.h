// Parameter updates in one pass over memory: AdamW, SGD, and the norm for clipping.
#pragma once

#include <concepts>
#include <cstdint>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {

/// Settings of one AdamW step (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019).
struct AdamWStep {
  float lr = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0;
  float bias_correction1 = 1;  ///< 1 - beta1^t
  float bias_correction2 = 1;  ///< 1 - beta2^t
  float grad_scale = 1;        ///< multiplies the gradient first (clipping)
};

/// Addresses of n weights that an update changes in place.
struct WholeWeights {
  float* p;
  core::Bf16* copy = nullptr;  ///< receives the new weights rounded to bf16, ties to even; null: none
};
struct HalvedWeights {
  std::uint16_t* upper;  ///< core::Halves of each weight
  std::uint16_t* lower;
};
template <class W>
concept WeightMemory = std::same_as<W, WholeWeights> || std::same_as<W, HalvedWeights>;

/// One AdamW update of n elements, in place:
///   g' = g * grad_scale;  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2
///   p  = p (1 - lr weight_decay) - lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
/// Weights in halves get the same fp32 values as whole ones. Traffic per element: reads 12 bytes and the
/// gradient, writes 12 bytes, and 2 more for a copy.
template <WeightMemory W, Storage G>
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
template <WeightMemory W, Storage G>
[[gnu::noipa]] void sgd_update(const SgdStep& step, std::int64_t n, W weights, const G* g);

/// Sum of g[i]^2 in double; the order of summation does not depend on the thread count. NaN and inf
/// propagate.
template <Storage G>
[[gnu::noipa]] double sum_of_squares(std::int64_t n, const G* g);

}  // namespace rooflm::backends::cpu
