// Dynamic loss scaling: what its state holds and how it changes.
#pragma once

#include <cmath>
#include <cstdint>

namespace rooflm::program {

/// The state [kLossScaleState] fp32 of loss scaling. All zeros, as new memory begins, is its beginning.
inline constexpr int kLossScaleState = 3;
inline constexpr int kScaleExponent = 0;   ///< log2 of the scale, less kFirstScaleExponent
inline constexpr int kGoodUpdates = 1;     ///< since the scale last changed
inline constexpr int kSkippedUpdates = 2;  ///< in all

/// The scale begins at 2^16, is doubled after 2000 updates in a row whose gradients were finite, and halved
/// by each whose gradients were not, which is then skipped (as torch.amp.GradScaler).
inline constexpr int kFirstScaleExponent = 16;
inline constexpr int kUpdatesUntilGrowth = 2000;

/// The scale of a state: a power of two, so that scaling rounds nothing but what leaves a dtype's range.
inline double loss_scale_of(const float* state) {
  return std::ldexp(1.0, kFirstScaleExponent + static_cast<int>(state[kScaleExponent]));
}

}  // namespace rooflm::program
