// fp8 matmuls with delayed scaling: the scale of a tensor follows from its amax (largest magnitude) in the
// previous steps (TransformerEngine's DelayedScaling; Micikevicius et al., "FP8 formats for deep learning",
// 2022).
//
// Every matmul of a layer has three slots: for its input activations, its weights and the gradient of its
// output. A slot holds kFp8Slot floats. All zeros, as in new memory, is its initial state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/f8.h"

namespace rooflm::program {

/// The operands of a matmul that have a slot.
enum class Fp8Operand : std::uint8_t { activation, weight, gradient };
inline constexpr int kFp8Operands = 3;

/// The outputs of an fp8 cast.
enum Fp8CastOutput : std::uint8_t { kAsStored, kTransposed, kSlot };

inline constexpr int kFp8Slot = 32;       ///< floats of one slot, 128 bytes
inline constexpr int kFp8Inverse = 0;     ///< 1 / scale: the factor of the matmul's fp32 sums
inline constexpr int kFp8Scale = 1;       ///< elements are multiplied by it before they are rounded
inline constexpr int kFp8Amax = 2;        ///< amax of the current step
inline constexpr int kFp8FirstAmax = 16;  ///< amax of the previous steps, latest first
/// Length of the history (TransformerEngine: 1024; here a spike is forgotten sooner).
inline constexpr int kFp8History = 16;

/// The longest rows that norm kernels can cast themselves: they keep 16 rows in shared memory.
inline constexpr std::int64_t kFp8NormCols = 6144;

/// Limit of scale exponents: the product of two scales stays a finite fp32 number.
inline constexpr int kFp8MostExponent = 60;

/// The largest power of two s with s * amax <= largest, for finite amax > 0; `largest` is the largest number
/// of the format. Scaling by powers of two rounds nothing.
inline float fp8_scale_for(float amax, float largest) {
  const int exponent = std::ilogb(largest) - std::ilogb(amax);
  const bool is_beyond = std::ldexp(amax, -std::ilogb(amax)) > std::ldexp(largest, -std::ilogb(largest));
  return std::ldexp(1.0F, std::clamp(exponent - (is_beyond ? 1 : 0), -kFp8MostExponent, kFp8MostExponent));
}

/// The largest number of e5m2 (gradients) or e4m3 (other operands).
inline float fp8_largest(bool is_e5m2) { return is_e5m2 ? core::F8E5M2::kLargest : core::F8E4M3::kLargest; }

inline void fp8_set_scale(float* slot, float scale) {
  slot[kFp8Scale] = scale;
  slot[kFp8Inverse] = 1 / scale;
}

/// Ends a step: pushes the step's amax onto the history, unless it is not finite, and sets the next step's
/// scale from the largest amax of the history. If all of them are 0, the scale stays, or becomes 1 if it was
/// never set. `largest` as in fp8_scale_for.
inline void fp8_next_scale(float* slot, float largest) {
  float* history = slot + kFp8FirstAmax;
  if (std::isfinite(slot[kFp8Amax])) {
    std::copy_backward(history, history + kFp8History - 1, history + kFp8History);
    history[0] = slot[kFp8Amax];
  }
  slot[kFp8Amax] = 0;
  const float most = *std::max_element(history, history + kFp8History);
  if (most > 0) {
    fp8_set_scale(slot, fp8_scale_for(most, largest));
  } else if (slot[kFp8Scale] == 0) {
    fp8_set_scale(slot, 1);
  }
}

}  // namespace rooflm::program
