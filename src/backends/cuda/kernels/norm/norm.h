// layernorm and rmsnorm over the last dimension C, with the residual addition, and their gradients.
//
// Activations [rows, C] are fp32 or bf16, `dtype`; weights, statistics, weight gradients and the arithmetic
// are fp32. C is at most kMaxNormCols. Launchers only submit. They throw core::Unavailable for another dtype
// or a wider row and std::runtime_error if the launch fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

constexpr std::int64_t kMaxNormCols = 16384;

/// layernorm: y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), var biased.
/// rmsnorm:   y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps); bias and mean are not used.
/// With `addend`, sum = x + addend is stored first, and the norm is that of sum as stored. sum may be x or
/// addend; y may be x or addend if sum is not.
struct NormForward {
  core::DType dtype{};
  std::int64_t rows = 0, cols = 0;
  float eps = 0;
  const void* x = nullptr;
  const void* addend = nullptr;   // or absent
  const float* weight = nullptr;  // [cols], or absent: 1
  const float* bias = nullptr;    // [cols], or absent: 0
  void* sum = nullptr;            // with addend
  void* y = nullptr;
  float* mean = nullptr;  // [rows]
  float* rstd = nullptr;  // [rows]
};
void launch_layernorm(Stream stream, const NormForward& args);
void launch_rmsnorm(Stream stream, const NormForward& args);

/// With g = dy * weight and xhat = (x - mean) * rstd (rmsnorm: x * rstd):
/// layernorm: dx = rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)) (+ d_residual)
/// rmsnorm:   dx = rstd * (g - xhat * mean_C(g * xhat)) (+ d_residual)
/// dweight (+)= sum over rows of dy * xhat, dbias (+)= sum over rows of dy; += with `accumulate`. y, if asked
/// for, is the norm's own output again, bit for bit; dx_sums, if asked for (layernorm), (+)= sum over rows of
/// dx as stored. dx may be dy, x or d_residual; y nothing else. `workspace` has norm_backward_workspace_bytes
/// bytes, aligned to 16.
struct NormBackward {
  core::DType dtype{};
  bool accumulate = false;
  std::int64_t rows = 0, cols = 0;
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* weight = nullptr;  // or absent: 1
  const float* mean = nullptr;    // layernorm
  const float* rstd = nullptr;
  const void* d_residual = nullptr;  // or absent
  const float* bias = nullptr;       // layernorm, with y
  void* dx = nullptr;
  void* y = nullptr;         // or absent
  float* dweight = nullptr;  // or absent
  float* dbias = nullptr;    // layernorm, or absent
  float* dx_sums = nullptr;  // layernorm, or absent
  void* workspace = nullptr;
};
void launch_layernorm_backward(Stream stream, const NormBackward& args);
void launch_rmsnorm_backward(Stream stream, const NormBackward& args);

/// Number of kernels of a launch on the current device, of operands at multiples of 16 bytes: sums of dx that
/// find no room in the first one (rows that are long or no multiple of 16 bytes) take two more.
[[nodiscard]] int layernorm_backward_launches(core::DType dtype, std::int64_t cols, bool has_sums);

/// For the current device and so many results of sums over rows: rmsnorm has one, layernorm two, three with
/// dx_sums.
[[nodiscard]] std::size_t norm_backward_workspace_bytes(std::int64_t rows, std::int64_t cols, int arrays);

}  // namespace rooflm::backends::cuda
