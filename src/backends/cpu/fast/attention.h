// Flash attention on packed projections: softmax(q·kᵀ·scale)·v in tiles, without a T x T matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {

/// Extents of one attention. Query head h reads key/value head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;
  bool causal = true;  ///< query t sees keys 0..t; otherwise all
  float scale = 0;     ///< multiplies q·kᵀ; 0: 1/sqrt(head_dim)
  // For blocks, without `causal`: queries from `first_query` on see the first `keys` keys; 0: all.
  std::int64_t first_query = 0;
  std::int64_t keys = 0;
  std::int64_t window = 0;  ///< of causal attention: keys that a query sees, its own included; 0: all
  float cap = 0;            ///< scores are cap tanh(score / cap); 0: as they are
  bool alibi = false;       ///< scores are less slope(head) (t - j) (program/scores.h)
  double slopes = 1;        ///< factor of these slopes
};

/// Bytes of scratch memory (64-byte aligned) for this shape and the current thread count, for any storage
/// type. Per thread a few tiles of 64 x D; backward also 4 x seq x D floats. Never seq x seq.
std::size_t attention_forward_scratch_bytes(const AttentionShape& shape);
std::size_t attention_backward_scratch_bytes(const AttentionShape& shape);

/// o = softmax(mask(q·kᵀ·scale))·v per head, and lse = log(sum(exp(.))) of every row of scores. Both sums
/// have exp(sinks[head]), too, if there are sinks [H]. qkv [B, T, (H+2K)*D]: the H query heads, then K key
/// heads, then K value heads; o [B, T, H*D]; lse f32 [B, H, T]. Nothing may alias. Scores, softmax and sums
/// are fp32. Results do not depend on the thread count. Dao et al., "FlashAttention", NeurIPS 2022. Throws
/// core::UsageError on extents that do not fit.
template <Storage S>
[[gnu::noipa]] void attention_forward(const AttentionShape& shape, const S* qkv, S* o, float* lse,
                                      void* scratch, const float* sinks = nullptr);

/// Gradient of the above: d_qkv (layout of qkv, fully written) from d_o (layout of o), recomputing the scores
/// tile by tile from qkv and lse. Nothing may alias. Results do not depend on the thread count. With sinks
/// also the sums over the queries of their gradients, d_sinks [B, H].
template <Storage S>
[[gnu::noipa]] void attention_backward(const AttentionShape& shape, const S* d_o, const S* qkv, const S* o,
                                       const float* lse, S* d_qkv, void* scratch,
                                       const float* sinks = nullptr, float* d_sinks = nullptr);

/// attention_forward with keys and values from another tensor: the query heads of qkv [B, T, (H+2K)*D], and
/// keys_values [B, T, 2K*D] with K key heads, then K value heads. Nothing may alias. Queries that see no key
/// get o = 0 and lse = -inf.
template <Storage S>
[[gnu::noipa]] void attention_block_forward(const AttentionShape& shape, const S* qkv, const S* keys_values,
                                            S* o, float* lse, void* scratch);

/// Gradient of the above, given o and lse over all blocks: accumulates into d_q [B, T, H*D] and d_keys_values
/// [B, T, 2K*D].
template <Storage S>
[[gnu::noipa]] void attention_block_backward(const AttentionShape& shape, const S* d_o, const S* qkv,
                                             const S* keys_values, const S* o, const float* lse, float* d_q,
                                             float* d_keys_values, void* scratch);

/// FLOP (2 per multiply-add) of the forward and the backward pass: 2 and 5 matmuls of T x T x D per head,
/// counting only scores on or below the diagonal if causal.
[[gnu::noipa]] double attention_forward_flop(const AttentionShape& shape);
[[gnu::noipa]] double attention_backward_flop(const AttentionShape& shape);

}  // namespace rooflm::backends::cpu
