// Dynamic loss scaling: its state and how it changes.
#pragma once

#include <cmath>
#include <cstdint>

namespace rooflm::program {

/// Floats of the state, fp32 [kLossScaleState]. All zeros, as in new memory, is the initial state.
inline constexpr int kLossScaleState = 3;
inline constexpr int kScaleExponent = 0;   ///< log2(scale) - kFirstScaleExponent
inline constexpr int kGoodUpdates = 1;     ///< updates since the scale last changed
inline constexpr int kSkippedUpdates = 2;  ///< skipped updates in total

/// The scale starts at 2^16. It doubles after 2000 consecutive updates with finite gradients. An update with
/// a non-finite gradient is skipped and halves it (as torch.amp.GradScaler).
inline constexpr int kFirstScaleExponent = 16;
inline constexpr int kUpdatesUntilGrowth = 2000;

/// The scale of a state: a power of two, so scaling is exact within the dtype's range.
inline double loss_scale_of(const float* state) {
  return std::ldexp(1.0, kFirstScaleExponent + static_cast<int>(state[kScaleExponent]));
}

}  // namespace rooflm::program
