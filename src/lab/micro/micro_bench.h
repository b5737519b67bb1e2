// Micro-benchmarks: attention alone, and matmuls as one big one, looped or batched.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "compile/recipe.h"
#include "core/dtype.h"
#include "core/named.h"
#include "core/statistics.h"
#include "measure/sampling.h"

namespace rooflm::lab {

using core::name_of;

/// Causal self-attention on packed qkv [B, T, (H + 2K) D], with neither projections nor a model around it.
struct AttentionProblem {
  std::int64_t batch = 1, heads = 1, head_dim = 64, seq = 256;
  std::int64_t kv_heads = 0;  ///< K; 0: as many as heads
  std::int64_t window = 0;    ///< keys that a query sees; 0: all before it
  passes::AttentionKind kind = passes::AttentionKind::batched;
  compile::EngineKind engine = compile::EngineKind::fused;
  core::DType dtype = core::DType::f32;
  program::Fp32Products fp32_products = program::Fp32Products::plain;
};

struct AttentionResult {
  std::string forward_library, backward_library;  ///< that run flash attention; "" for other kinds
  core::Summary forward, backward;                ///< seconds
  double peak_bytes = 0;       ///< inputs, outputs and what is alive between them, as planned
  double workspace_bytes = 0;  ///< workspace of the backend's kernels
  double forward_flop = 0;     ///< of the matmuls, what is masked counted in full
  double backward_flop = 0;
};

/// Bytes that run_attention needs, without workspaces of kernels.
double attention_bytes(const AttentionProblem& problem);

/// Forward and backward of one attention as a program, with random inputs. Throws core::OutOfMemory before
/// anything large is allocated when it needs more than the backend has free (or `memory_limit_bytes`, if not
/// 0), core::Unavailable when the backend lacks a kernel.
AttentionResult run_attention(backends::Backend& backend, const AttentionProblem& problem,
                              const measure::SamplingOptions& options, double memory_limit_bytes = 0);

/// How `count` matmuls [m, k] x [k, n] are submitted to the device.
enum class GemmStrategy : std::uint8_t {
  big,     ///< one matmul [count m, k] x [k, n]: the same arithmetic, one call, one right operand
  looped,  ///< one call per matmul
  batched  ///< one call for all of them, at constant strides
};
constexpr auto names_of(GemmStrategy) {
  return core::named<GemmStrategy>(
      "strategy",
      {{GemmStrategy::big, "big"}, {GemmStrategy::looped, "looped"}, {GemmStrategy::batched, "batched"}});
}

struct GemmProblem {
  std::int64_t m = 1024, n = 1024, k = 1024, count = 1;
  bool trans_b = false;  ///< the right operand is stored [n, k]
  GemmStrategy strategy = GemmStrategy::batched;
  core::DType dtype = core::DType::f32;
  program::Fp32Products fp32_products = program::Fp32Products::plain;
  [[nodiscard]] double flop() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
  /// Both operands and the result.
  [[nodiscard]] double bytes() const;
};

struct GemmResult {
  core::Summary wall;    ///< seconds from the submission of all matmuls until the device is done
  core::Summary device;  ///< seconds that the device took, the gaps between its kernels included
};

/// Calls `use` with a function that runs all matmuls once, on random operands, and waits for them. Throws as
/// run_attention.
void with_gemm(backends::Backend& backend, const GemmProblem& problem,
               const std::function<void(const std::function<void()>& run)>& use);

/// All matmuls, with random operands. Throws as run_attention.
GemmResult run_gemm(backends::Backend& backend, const GemmProblem& problem,
                    const measure::SamplingOptions& options);

}  // namespace rooflm::lab
