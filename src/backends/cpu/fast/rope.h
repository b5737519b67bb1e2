// Rotary position embedding on packed projections.
#pragma once

#include <cstdint>

#include "backends/cpu/fast/attention.h"
#include "program/pieces.h"

namespace rooflm::backends::cpu {

/// cos and sin [seq, head_dim/2] f32 of the angle t * theta^(-2i/head_dim) (Su et al., "RoFormer"), computed
/// in double. head_dim is even.
[[gnu::noipa]] void rope_tables(std::int64_t seq, std::int64_t head_dim, double theta, float* cosines,
                                float* sines);

/// Elements of a head that are rotated; dims 0: all.
struct RotatedPart {
  std::int64_t begin = 0, dims = 0;
};

/// Rotates the pairs (i, i + D/2) of every query and key head of qkv [B, T, (H+2K)*D] by the angle of
/// position t:
///   y_i = x_i cos - x_{i+D/2} sin,  y_{i+D/2} = x_{i+D/2} cos + x_i sin
/// Value heads are copied. `inverse` rotates the other way, which is the gradient. out may be in (in place).
/// Tables are those of rope_tables, for whole sequences even if the rank has pieces of them. Row t of text b
/// is at position begin[b] + t, or t if `begin` is null. With `part` D is the number
/// of rotated elements in these formulas and of the tables.
template <Storage S>
[[gnu::noipa]] void rope(const AttentionShape& shape, const program::Pieces& pieces, const S* in,
                         const float* cosines, const float* sines, bool inverse, const std::int32_t* begin,
                         S* out, const RotatedPart& part = {});

}  // namespace rooflm::backends::cpu
