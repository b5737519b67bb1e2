// Split and merge heads: packed projections [B, T, (H + 2K) D] to and from q [B, H, T, D] and k, v [B, K, T,
// D]; rotary positions. fp32 or bf16, `dtype`. Launchers only submit. They throw core::Unavailable for
// another dtype and std::runtime_error if a launch fails.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "backends/cuda/kernels/token_places.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

struct HeadsShape {
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  /// Elements per packed row.
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// qkv -> q, k, v. No aliasing.
void launch_split_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* qkv, void* q,
                        void* k, void* v);
/// q, k, v -> qkv. No aliasing.
void launch_join_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* q,
                       const void* k, const void* v, void* qkv);
/// y [B, H, T, D] -> [B, T, H D]; kv_heads is not used. No aliasing.
void launch_merge_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* y,
                        void* merged);
/// [B, T, H D] -> y [B, H, T, D]; kv_heads is not used. No aliasing.
void launch_unmerge_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* merged,
                          void* y);

/// cosines[t, i] = amplitude * cos(place(t) * frequencies[i]), sines likewise; fp32 [T, half], computed in
/// fp64. `frequencies` [half] is in device memory.
void launch_rope_tables(Stream stream, std::int64_t seq, std::int64_t half, const double* frequencies,
                        double amplitude, const TokenPlaces& places, float* cosines, float* sines);
/// Of each head 2 `pairs` elements are rotated, from `begin` on.
struct RotaryPart {
  std::int64_t pairs = 0, begin = 0;
};
/// Rotates a part of the q and k heads of x = qkv [B, T, (H + 2K) D]. With (c, s) the entries of (t, i) of
/// the tables [T, pairs], of each head from `begin` on:
///   y[i] = x[i] c - x[i + pairs] s,  y[i + pairs] = x[i + pairs] c + x[i] s   for i < pairs
/// `inverse` negates s. v and the rest of a head are copied. y may be x. Row t of text b is at position
/// first[b] + t, first int32 [B]; t if `first` is null.
void launch_rope(Stream stream, core::DType dtype, const HeadsShape& shape, const RotaryPart& part,
                 const void* x, const float* cosines, const float* sines, bool inverse,
                 const std::int32_t* first, void* y);

}  // namespace rooflm::backends::cuda
