// Causal flash attention on packed projections, and its gradient: no T x T matrix.
//
// qkv [B, T, (H + 2K) D] holds query heads, then key heads, then value heads; query head h uses key/value
// head h / (H/K). fp32, bf16 or fp16, `dtype`; softmax and sums are fp32. 16 bits with D a multiple of 8
// run on tensor cores (sm_80 and later), and so does fp32 where `products` says how its numbers are
// multiplied there, if a block has shared memory for their tiles: rounded to TF32 or, of bf16x6, as sums of
// two TF32 numbers, three products that are about as close as fp32 multiply-adds (NVIDIA CUTLASS, "3xTF32"),
// with D of 40 to 128, and NaN for factors beyond 2^114. Everything else runs on CUDA cores in fp32. D is at
// most kMaxHeadDim. Same bits every time, unless a launcher says otherwise. Launchers only submit; they throw
// core::Unavailable for another dtype or a larger D and std::runtime_error when a launch is refused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"
#include "program/fp32_products.h"

namespace rooflm::backends::cuda {

using program::Fp32Products;

constexpr std::int64_t kMaxHeadDim = 256;

/// How scores are computed, beside products of queries and keys (program/ops/attention.cpp).
struct ScoreRules {
  std::int64_t window = 0;  ///< keys that a query sees, its own included; 0: all up to its own
  float scale = 0;          ///< of products; 0: 1 / sqrt(D)
  float cap = 0;            ///< scores are cap tanh(score / cap); 0: as they are
  bool alibi = false;       ///< scores have a bias, slope(head) (key - query)
  bool sinks = false;       ///< the softmax has one more score per head, of no key
  auto operator<=>(const ScoreRules&) const = default;
};

struct AttentionShape {
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  ScoreRules rules{};

  /// Whether kernels for the rules compute scores and their gradients; those without take any scale.
  [[nodiscard]] bool bends_scores() const {
    return (rules.window > 0 && rules.window < seq) || rules.cap > 0 || rules.alibi;
  }
  /// The same of the softmax.
  [[nodiscard]] bool has_rules() const { return bends_scores() || rules.sinks; }
};

/// Scores of no key, [H], fp32, bf16 or fp16; where there are none, `data` is null.
struct Sinks {
  const void* data = nullptr;
  core::DType dtype = core::DType::f32;
};

/// Whether the launchers take the matrix instructions of Hopper's warp groups: sm_90, bf16, D of 64, 80 or
/// 128.
[[nodiscard]] bool runs_on_warp_groups(core::DType dtype, const AttentionShape& shape);

/// Whether the launchers take tensor cores at all, with operands aligned to 16 bytes: 16 bits, or fp32 whose
/// products are not plain; D a multiple of 8, and room for the tiles in a block's shared memory.
[[nodiscard]] bool runs_on_tensor_cores(core::DType dtype, const AttentionShape& shape,
                                        Fp32Products products = Fp32Products::plain);

/// y = softmax(scores) v, causal, y [B, T, H D], of scores q k^T / sqrt(D) or as shape.rules say, with
/// shape.rules.sinks one more in the sum; lse[b, h, t] = log sum exp of the row, fp32. No aliasing.
void launch_flash_attention(Stream stream, core::DType dtype, const AttentionShape& shape, const void* qkv,
                            void* y, float* lse, Fp32Products products = Fp32Products::plain,
                            const Sinks& sinks = {});

/// With p = exp(q k^T / sqrt(D) - lse): dv = p^T dy, ds = p (dy v^T - rowsum(dy y)) / sqrt(D), dq = ds k,
/// dk = ds^T q, sums over the query heads of a key/value head; all written to dqkv, shaped as qkv. Scores of
/// a cap have its derivative in ds, too. No aliasing. `workspace` holds
/// flash_attention_backward_workspace_bytes, aligned to 16.
void launch_flash_attention_backward(Stream stream, core::DType dtype, const AttentionShape& shape,
                                     const void* dy, const void* qkv, const void* y, const float* lse,
                                     void* dqkv, void* workspace,
                                     Fp32Products products = Fp32Products::plain);
[[nodiscard]] std::size_t flash_attention_backward_workspace_bytes(const AttentionShape& shape);

/// d_sinks[h] = -sum over b and t of exp(sink - lse) rowsum(dy y), fp32 [H], of whatever kernels computed y
/// and lse; `accumulate` adds. `workspace` holds flash_attention_backward_workspace_bytes.
void launch_sinks_gradient(Stream stream, core::DType dtype, const AttentionShape& shape, const void* dy,
                           const void* y, const float* lse, const Sinks& sinks, float* d_sinks,
                           void* workspace, bool accumulate);
/// The same from delta [B, H, T], rowsum(dy y). If `lse` is null, delta is the whole product.
void launch_sum_sinks(Stream stream, const AttentionShape& shape, const float* delta, const float* lse,
                      const Sinks& sinks, float* d_sinks, bool accumulate);

/// Whether there is a gradient in one pass, of five matmuls instead of seven: bf16 on sm_90, D of 64 or 128,
/// no rules but windows and sinks.
[[nodiscard]] bool fits_fused_backward(core::DType dtype, const AttentionShape& shape);

/// Which of the three launches of the gradient in one pass run; benchmarks choose. Each needs the results of
/// those before it; matmuls that run again without the first do nothing right.
struct FusedBackward {
  bool prepares = true;    ///< sums of rows, and zeros
  bool multiplies = true;  ///< the matmuls
  bool rounds = true;      ///< dq to bf16
};

/// As launch_flash_attention_backward, of bf16 that fits_fused_backward; operands that are not aligned to 16
/// go there. dq is summed in fp32 in any order: its last bits differ from run to run. `workspace` holds
/// fused_attention_backward_workspace_bytes, 4 B H T D and a little, aligned to 16.
void launch_fused_attention_backward(Stream stream, const AttentionShape& shape, const void* dy,
                                     const void* qkv, const void* y, const float* lse, void* dqkv,
                                     void* workspace, FusedBackward how = {});
[[nodiscard]] std::size_t fused_attention_backward_workspace_bytes(const AttentionShape& shape);

}  // namespace rooflm::backends::cuda
