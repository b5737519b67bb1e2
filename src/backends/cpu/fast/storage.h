// The element types that the fast kernels store: fp32 and bf16. All of them compute in fp32.
//
// Functions of this folder are [[gnu::noipa]]. Inlined into a caller in the same file, a loop would be
// compiled again and might contract a multiplication and an addition differently than its multithreaded copy.
#pragma once

#include <concepts>

#include "core/dtype.h"

namespace rooflm::backends::cpu {

/// Storage type of activations and weights.
template <class S>
concept Storage = std::same_as<S, float> || std::same_as<S, core::Bf16>;

}  // namespace rooflm::backends::cpu
