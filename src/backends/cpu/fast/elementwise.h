// Whole-array loops: add, scale, fill, cast.
#pragma once

#include <cstdint>

#include "backends/cpu/fast/storage.h"
#include "core/f16.h"

namespace rooflm::backends::cpu {

/// y = a + b, rounded once to the storage type. y may alias a or b.
template <Storage S>
[[gnu::noipa]] void add(std::int64_t n, const S* a, const S* b, S* y);

/// y += x with y f32.
template <Storage S>
[[gnu::noipa]] void accumulate(std::int64_t n, const S* x, float* y);

/// y = factor * x. y may alias x.
template <Storage S>
[[gnu::noipa]] void scale(std::int64_t n, float factor, const S* x, S* y);

/// y = value.
template <Storage S>
[[gnu::noipa]] void fill(std::int64_t n, float value, S* y);

/// y = x in the other dtype, to nearest, ties to even (results that are subnormal in bf16 may become zero).
[[gnu::noipa]] void cast(std::int64_t n, const float* x, core::Bf16* y);
[[gnu::noipa]] void cast(std::int64_t n, const core::Bf16* x, float* y);
[[gnu::noipa]] void cast(std::int64_t n, const float* x, core::F16* y);
[[gnu::noipa]] void cast(std::int64_t n, const core::F16* x, float* y);

/// Copies n bytes with all threads; the ranges must not overlap.
[[gnu::noipa]] void copy_bytes(std::int64_t n, const void* from, void* to);

}  // namespace rooflm::backends::cpu
