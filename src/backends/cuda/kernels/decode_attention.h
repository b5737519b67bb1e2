// Attention of one new row of each text to the keys and values that are kept of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// B texts, caches of P positions.
struct DecodeShape {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, head_dim = 0, positions = 0;
};
/// Heads that the kernel takes.
inline constexpr std::int64_t kMostDecodeDim = 256;

/// Into how many parts, one block each, the rows of a text's cache are cut, so that all `multiprocessors`
/// have work; whatever the text's length is when the kernel runs.
[[nodiscard]] int decode_parts(const DecodeShape& shape, int multiprocessors);
/// Bytes for results of parts, contents undefined, and for counters, which are zeros before the first launch
/// and after each.
[[nodiscard]] std::size_t decode_workspace_bytes(const DecodeShape& shape, int parts);
[[nodiscard]] std::size_t decode_counter_bytes(const DecodeShape& shape);

/// Row first[b] of k and v [B, K, P, D] becomes that of qkv [B, (H + 2K) D]; then y [B, H D] =
/// softmax(q k^T / sqrt(D)) v over rows 0 .. first[b] (Dao et al., "Flash-Decoding", 2023). first int32 [B],
/// below P. fp32, bf16 or fp16, `dtype`; sums are fp32 and in an order that depends on first[b] and `parts`
/// alone. Only submits; throws core::Unavailable for another dtype and std::runtime_error when a launch is
/// refused.
void launch_decode_attention(Stream stream, core::DType dtype, const DecodeShape& shape, int parts,
                             const void* qkv, const std::int32_t* first, void* k, void* v, void* y,
                             void* workspace, void* counters);

}  // namespace rooflm::backends::cuda
