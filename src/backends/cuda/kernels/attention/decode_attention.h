// Decode attention: one new query row per text against its key/value cache, or any rows of texts against keys
// and values in blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// B texts, caches of P positions.
struct DecodeShape {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, head_dim = 0, positions = 0;
  ScoreRules rules{};
};
/// The largest head size that the kernel supports.
inline constexpr std::int64_t kMostDecodeDim = 256;

/// Number of parts, one block each, into which the cache rows of a text are split to occupy all
/// `multiprocessors`. It does not depend on the texts' lengths.
[[nodiscard]] int decode_parts(const DecodeShape& shape, int multiprocessors);
/// Workspace bytes: results of the parts, contents undefined, and counters, which must be zero before the
/// first launch and are zero after each.
[[nodiscard]] std::size_t decode_workspace_bytes(const DecodeShape& shape, int parts);
[[nodiscard]] std::size_t decode_counter_bytes(const DecodeShape& shape);

/// Row first[b] of k and v [B, K, P, D] becomes that of qkv [B, (H + 2K) D]; then y [B, H D] = softmax(q k^T
/// / sqrt(D)) v over rows 0 .. first[b] (Dao et al., "Flash-Decoding", 2023), or as shape.rules say: rows
/// before a window are not read. first int32 [B], below P. fp32, bf16 or fp16, `dtype`; sums are fp32, in an
/// order that depends only on first[b] and `parts`. Only submits. Throws core::Unavailable for another dtype
/// and std::runtime_error if a launch fails.
void launch_decode_attention(Stream stream, core::DType dtype, const DecodeShape& shape, int parts,
                             const void* qkv, const std::int32_t* first, void* k, void* v, void* y,
                             void* workspace, void* counters, const Sinks& sinks = {});

/// Keys and values in blocks [pool, K, block, D]: row b of qkv has those of its text in blocks[b, 0 ..
/// width), and positions of shape.positions = width * block. Several rows may be of one text.
struct CacheBlocks {
  const std::int32_t* blocks = nullptr;  ///< [B, width]
  int block = 0, width = 0;
};
/// As launch_decode_attention; keys and values of all rows are stored first, by a kernel of their own.
void launch_paged_attention(Stream stream, core::DType dtype, const DecodeShape& shape,
                            const CacheBlocks& cache, int parts, const void* qkv, const std::int32_t* first,
                            void* k, void* v, void* y, void* workspace, void* counters,
                            const Sinks& sinks = {});

}  // namespace rooflm::backends::cuda
