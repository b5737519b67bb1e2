// Ring attention (program/ops/ring.cpp): attention of a rank's queries to the keys of another rank, and what
// belongs to it.
//
// qkv [B, T, (H + 2K) D] as in attention.h, of which the query heads are read; keys_values [B, T, 2K D] has K
// key heads, then K value heads. fp32, bf16 or fp16, `dtype`; softmax and sums are fp32. Same bits every
// time. Launchers only submit; they throw core::Unavailable for another dtype or a larger D and
// std::runtime_error when a launch is refused.
#pragma once

#include "backends/cuda/kernels/attention/attention.h"

namespace rooflm::backends::cuda {

/// Queries from `first_query` on see the first `keys` keys; with `causal`, of a rank's own keys, query t sees
/// keys 0..t.
struct AttentionBlock {
  AttentionShape shape{};
  std::int64_t first_query = 0, keys = 0;
  bool causal = false;
};

/// keys_values = the key and value heads of qkv.
void launch_take_keys_values(Stream stream, core::DType dtype, const AttentionShape& shape, const void* qkv,
                             void* keys_values);

/// y [B, T, H D] and lse [B, H, T] of the block, as launch_flash_attention; queries that see nothing get 0
/// and -inf. No aliasing.
void launch_attention_block(Stream stream, core::DType dtype, const AttentionBlock& block, const void* qkv,
                            const void* keys_values, void* y, float* lse);

/// y, lse of all blocks so far, with `more` those of one more: lse = log(e^lse + e^more_lse), y = e^(lse_1 -
/// lse) y + e^(more_lse - lse) more_y. In place.
void launch_join_blocks(Stream stream, core::DType dtype, const AttentionShape& shape, const void* more_y,
                        const float* more_lse, void* y, float* lse);

/// Gradients of the block, given y and lse of all blocks together: dq [B, T, H D] and d_keys_values [B, T, 2K
/// D], fp32, are written, with `accumulate` added to. `workspace` holds attention_block_workspace_bytes,
/// aligned to 256. No aliasing.
void launch_attention_block_backward(Stream stream, core::DType dtype, const AttentionBlock& block,
                                     const void* dy, const void* qkv, const void* keys_values, const void* y,
                                     const float* lse, float* dq, float* d_keys_values, void* workspace,
                                     bool accumulate);

[[nodiscard]] std::size_t attention_block_workspace_bytes(core::DType dtype, const AttentionBlock& block);

/// dqkv = dq and d_keys_values side by side.
void launch_join_gradients(Stream stream, core::DType dtype, const AttentionShape& shape, const float* dq,
                           const float* d_keys_values, void* dqkv);

}  // namespace rooflm::backends::cuda
