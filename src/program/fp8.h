// Scaled products in fp8: what the scale of a tensor is, and how it follows from the largest elements of the
// steps before (delayed scaling).
//
// Every product of a layer has three slots: of its left factor's activations, of its weights, and of the
// gradients of its result. A slot holds kFp8Slot floats; zeros, as new memory begins, are its beginning.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/f8.h"

namespace rooflm::program {

/// The operands of a product that have a slot.
enum class Fp8Operand : std::uint8_t { activation, weight, gradient };
inline constexpr int kFp8Operands = 3;

inline constexpr int kFp8Slot = 32;       ///< floats of one slot, 128 bytes
inline constexpr int kFp8Inverse = 0;     ///< 1 / scale: what products multiply with
inline constexpr int kFp8Scale = 1;       ///< what elements are multiplied with before they are rounded
inline constexpr int kFp8Amax = 2;        ///< the largest magnitude of the step that runs
inline constexpr int kFp8FirstAmax = 16;  ///< those of the steps before, the last first
inline constexpr int kFp8History = 16;    ///< how many (TransformerEngine: 1024; a spike is forgotten sooner)

/// The longest rows of norms that cast what they make: kernels keep 16 of them in shared memory.
inline constexpr std::int64_t kFp8NormCols = 6144;

/// Exponents of scales: their products stay numbers of fp32.
inline constexpr int kFp8MostExponent = 60;

/// The largest power of two that takes `amax` (finite, above 0) to at most `largest`: a format's largest
/// number. Powers of two, so that scaling rounds nothing.
inline float fp8_scale_for(float amax, float largest) {
  const int exponent = std::ilogb(largest) - std::ilogb(amax);
  const bool is_beyond = std::ldexp(amax, -std::ilogb(amax)) > std::ldexp(largest, -std::ilogb(largest));
  return std::ldexp(1.0F, std::clamp(exponent - (is_beyond ? 1 : 0), -kFp8MostExponent, kFp8MostExponent));
}

/// The largest number of the format that gradients, or other operands, are rounded to.
inline float fp8_largest(bool is_e5m2) { return is_e5m2 ? core::F8E5M2::kLargest : core::F8E4M3::kLargest; }

inline void fp8_set_scale(float* slot, float scale) {
  slot[kFp8Scale] = scale;
  slot[kFp8Inverse] = 1 / scale;
}

/// At the end of a step: the step's largest magnitude joins the history, unless it is no number, and the
/// scale of the next step follows from the largest of the history. A slot of zeros alone gets the scale 1.
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
