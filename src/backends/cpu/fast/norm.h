// LayerNorm and RMSNorm over rows, forward and backward, with the residual addition fused in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/fast/storage.h"

namespace rooflm::backends::cpu {

/// LayerNorm has a bias and means, RMSNorm has neither.
enum class Norm { layer, rms };

/// Arguments of a forward norm over the last dimension; everything row-major [rows, cols].
template <Storage S>
struct NormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  float eps = 1e-5F;
  const S* x = nullptr;         ///< [rows, cols]
  const S* residual = nullptr;  ///< [rows, cols] added to x first; null: none
  S* sum = nullptr;  ///< [rows, cols] x + residual as stored; required with a residual; may alias either
  const float* weight = nullptr;  ///< [cols]; null: 1
  const float* bias = nullptr;    ///< [cols]; null: 0 (RMSNorm never has one)
  S* y = nullptr;                 ///< [rows, cols]; may alias x or residual, not sum
  float* mean = nullptr;          ///< [rows]; LayerNorm only; null: not wanted
  float* rstd = nullptr;          ///< [rows]; null: not wanted
};

/// layer: y = (s - mean(s)) * rstd * weight + bias,  s = x (+ residual),  rstd = 1 / sqrt(var(s) + eps)
/// var over cols is biased (no Bessel's correction). rms: y = s * rstd * weight, rstd = 1/sqrt(mean(s^2) +
/// eps). Bit-identical to add() followed by the norm without residual.
template <Norm kNorm, Storage S>
[[gnu::noipa]] void norm_forward(const NormForward<S>& a);

/// Arguments of a backward norm.
template <Storage S>
struct NormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const S* dy = nullptr;          ///< [rows, cols]
  const S* x = nullptr;           ///< [rows, cols] what was normalised (the stored sum)
  const float* weight = nullptr;  ///< [cols]; null: 1
  const float* mean = nullptr;    ///< [rows] LayerNorm only
  const float* rstd = nullptr;    ///< [rows]
  const S* d_residual = nullptr;  ///< [rows, cols] added to dx; null: none
  S* dx = nullptr;                ///< [rows, cols]; may alias dy or d_residual
  float* dweight = nullptr;       ///< [cols]; null: none
  float* dbias = nullptr;         ///< [cols]; null: none
  bool accumulate = false;        ///< dweight and dbias += instead of =
};

/// Bytes of scratch memory of a backward norm (64-byte aligned).
std::size_t norm_backward_scratch_bytes(std::int64_t rows, std::int64_t cols);

/// With n = (x - mean) * rstd, rms: x * rstd, and g = dy * weight:
///   dx = rstd * (g - mean(g) - n * mean(g * n)) (+ d_residual), rms: without mean(g)
///   dweight (+)= sum over rows of dy * n,  layer: dbias (+)= sum over rows of dy
/// Results do not depend on the thread count.
template <Norm kNorm, Storage S>
[[gnu::noipa]] void norm_backward(const NormBackward<S>& a, void* scratch);

}  // namespace rooflm::backends::cpu
