// Token and position embeddings, forward and backward.
#pragma once

#include <cstdint>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {

/// Extents: tokens are i32 [batch, seq], rows of the token table are `cols` wide.
struct EmbeddingShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t cols = 0;
};

/// y[b, t, :] = table[tokens[b, t], :] (+ positions[begin[b] + t, :]; begin null: zeros). table [vocab,
/// cols]; positions [> begin[b] + t, cols] or null; y [batch, seq, cols]. Tokens and positions must be valid
/// rows: the caller checks.
template <Storage S>
[[gnu::noipa]] void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const S* table,
                                      const S* positions, const std::int32_t* begin, S* y);

/// dtable[tokens[b, t], :] += dy[b, t, :] in the order of (b, t), independent of the thread count. dtable f32
/// [vocab, cols]; other rows do not change.
template <Storage S>
[[gnu::noipa]] void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const S* dy,
                                       float* dtable);

/// dpositions[t, :] (+)= sum over b of dy[b, t, :]. dpositions f32 [>= seq, cols]; rows from seq on do not
/// change.
template <Storage S>
[[gnu::noipa]] void position_embedding_backward(const EmbeddingShape& shape, const S* dy, float* dpositions,
                                                bool accumulate);

}  // namespace rooflm::backends::cpu
