// Softmax cross-entropy over rows of logits, forward, backward and both at once.
#pragma once

#include <cstdint>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {

/// Extents of a loss: logits [rows, cols], row-major. The first `valid` columns are the vocabulary; the rest
/// is padding, which is never read as a score and gets gradient zero.
struct LossShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t valid = 0;
};

/// lse[r] = log(sum over valid columns of exp(logits[r, j])), losses[r] = lse[r] - logits[r, targets[r]].
/// targets i32 [rows] in [0, valid), or negative: such a row has loss 0 and gradient 0. losses and lse f32
/// [rows].
template <Storage S>
[[gnu::noipa]] void cross_entropy_forward(const LossShape& shape, const S* logits,
                                          const std::int32_t* targets, float* losses, float* lse);

/// dlogits[r, j] = (exp(logits[r, j] - lse[r]) - [j == targets[r]]) * scale; dlogits may be logits (in
/// place).
template <Storage S>
[[gnu::noipa]] void cross_entropy_backward(const LossShape& shape, const S* logits,
                                           const std::int32_t* targets, const float* lse, float scale,
                                           S* dlogits);

/// Both passes, row by row while the row is in cache. Same bits as one after the other. dlogits may be
/// logits.
template <Storage S>
[[gnu::noipa]] void cross_entropy_with_gradient(const LossShape& shape, const S* logits,
                                                const std::int32_t* targets, float scale, float* losses,
                                                float* lse, S* dlogits);

}  // namespace rooflm::backends::cpu
