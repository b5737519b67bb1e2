// The element types that the fast kernels store: fp32 and bf16. All of them compute in fp32.
//
// Functions of this folder are [[gnu::noipa]]: inlined into the kernel that calls them in the same file, a
// loop would be compiled anew and round a product and a sum differently than its copy for several threads.
#pragma once

#include <concepts>

#include "core/dtype.h"

namespace rooflm::backends::cpu {

/// Storage type of activations and weights.
template <class S>
concept Storage = std::same_as<S, float> || std::same_as<S, core::Bf16>;

}  // namespace rooflm::backends::cpu
