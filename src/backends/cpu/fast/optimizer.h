// Parameter updates in one pass over memory: AdamW, SGD, and the norm for clipping.
#pragma once

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

/// g' = g * grad_scale; m = beta1 m + (1-beta1) g'; v = beta2 v + (1-beta2) g'^2;
/// p = p (1 - lr weight_decay) - lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps), n elements,
/// in place; p_bf16 (null: none) gets the new p rounded to bf16. Reads 16 and writes 12 (+2) bytes per
/// element.
[[gnu::noipa]] void adamw_update(const AdamWStep& step, std::int64_t n, float* p, float* m, float* v,
                                 const float* g, core::Bf16* p_bf16);

/// Settings of one SGD step.
struct SgdStep {
  float lr = 0;
  float momentum = 0;  ///< needs the velocity buffer if not 0
  float weight_decay = 0;
  float grad_scale = 1;
};

/// g' = g * grad_scale + weight_decay p; velocity = momentum velocity + g'; p -= lr velocity (without a
/// velocity buffer: p -= lr g').
[[gnu::noipa]] void sgd_update(const SgdStep& step, std::int64_t n, float* p, float* velocity, const float* g,
                               core::Bf16* p_bf16);

/// Sum of g[i]^2 in double; the order of summation does not depend on the thread count. NaN and inf
/// propagate.
[[gnu::noipa]] double sum_of_squares(std::int64_t n, const float* g);

}  // namespace rooflm::backends::cpu
