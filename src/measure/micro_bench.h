// Micro-benchmarks: attention alone, and matrix products cut up in different ways.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "core/dtype.h"
#include "core/statistics.h"
#include "engines/recipe.h"
#include "measure/sampling.h"

namespace rooflm::measure {

/// Causal self-attention on packed qkv [B, T, 3 H D], with neither projections nor a model around it.
struct AttentionProblem {
  std::int64_t batch = 1, heads = 1, head_dim = 64, seq = 256;
  passes::AttentionKind kind = passes::AttentionKind::batched;
  engines::EngineKind engine = engines::EngineKind::fused;
  core::DType dtype = core::DType::f32;
};

struct AttentionResult {
  core::Summary forward, backward;  ///< seconds
  double peak_bytes = 0;            ///< inputs, outputs and what is alive between them, as planned
  double forward_flop = 0;          ///< of the matrix products, causal attention counted in full
  double backward_flop = 0;
};

/// Forward and backward of one attention as a program, with random inputs. Throws core::OutOfMemory before
/// anything large is allocated when it needs more than the backend has free (or `memory_limit_bytes`, if not
/// 0), core::Unavailable when the backend lacks a kernel.
AttentionResult run_attention(backends::Backend& backend, const AttentionProblem& problem,
                              const SamplingOptions& options, double memory_limit_bytes = 0);

/// How `count` products [n, n] x [n, n] are given to the device.
enum class GemmStrategy : std::uint8_t {
  big,     ///< one product [count n, n] x [n, n]: the same arithmetic, one call, one right operand
  looped,  ///< one call per product
  batched  ///< one call for all of them, at constant strides
};
std::string_view name_of(GemmStrategy strategy);
/// Throws core::UsageError with a suggestion.
GemmStrategy parse_gemm_strategy(std::string_view name);

struct GemmProblem {
  std::int64_t n = 1024, count = 1;
  GemmStrategy strategy = GemmStrategy::batched;
  core::DType dtype = core::DType::f32;
  [[nodiscard]] double flop() const {
    const auto extent = static_cast<double>(n);
    return 2 * extent * extent * extent * static_cast<double>(count);
  }
};

/// The rate of all products together, in flop/s. Throws as run_attention.
core::Summary run_gemm(backends::Backend& backend, const GemmProblem& problem,
                       const SamplingOptions& options);

}  // namespace rooflm::measure
