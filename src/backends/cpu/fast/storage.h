// The element types that the fast kernels store: fp32 and bf16, those of updates fp16, too. All of them
// compute in fp32.
//
// Functions of this folder are [[gnu::noipa]]. Inlined into a caller in the same file, a loop would be
// compiled again and might contract a multiplication and an addition differently than its multithreaded copy.
#pragma once

#include <concepts>

#include "core/dtype.h"
#include "core/f16.h"

namespace rooflm::backends::cpu {

/// Storage type of activations and weights.
template <class S>
concept Storage = std::same_as<S, float> || std::same_as<S, core::Bf16>;

/// 16 bits.
template <class H>
concept Half = std::same_as<H, core::Bf16> || std::same_as<H, core::F16>;

/// Storage type of gradients of weights.
template <class G>
concept GradientStorage = std::same_as<G, float> || Half<G>;

}  // namespace rooflm::backends::cpu
