// What optimizers of whole matrices need beside matmuls and sgd (program/ops/matrix_optimizer.cpp). Elements
// are fp32, bf16 or fp16. Launchers only submit. They throw std::runtime_error if a launch fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"
#include "core/moving_average.h"

namespace rooflm::backends::cuda {

/// `count` elements of a gradient and of its moving average, and where the direction goes.
struct MomentumTensor {
  std::int64_t count = 0;
  const void* gradient = nullptr;
  float* moment = nullptr;
  void* direction = nullptr;
  core::DType gradient_dtype = core::DType::f32;
};

/// hyper and norm as in UpdateStep (kernels/optimizer/optimizer.h).
struct MomentumStep {
  const float* norm = nullptr;  ///< null: no clipping
  float max_norm = 0;
  core::MovingAverage beta{};
  bool squared = false, nesterov = false;
  core::DType direction_dtype = core::DType::f32;
};

/// g' = factor g, factor = min(1, max_norm / (norm + 1e-6)), squared or not; m = beta m + (1 - beta) g';
/// direction = nesterov ? beta m + (1 - beta) g' : m.
void launch_momentum(Stream stream, const MomentumStep& step, std::span<const MomentumTensor> tensors);
[[nodiscard]] std::int64_t momentum_launches(std::span<const std::int64_t> counts);

/// y = size x / (|x| + eps) for each of `matrices` matrices of n elements; squares are summed in double and
/// in a fixed order. At most 65,535 matrices. y may be x. `workspace` has normalize_workspace_bytes.
struct Normalize {
  std::int64_t matrices = 0, n = 0;
  double size = 1, eps = 0;
  const void* x = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;
};
void launch_normalize(Stream stream, core::DType dtype, const Normalize& p);
[[nodiscard]] std::size_t normalize_workspace_bytes(std::int64_t matrices, std::int64_t n);

/// y = a I + b x + c square for matrices [n, n], which are `rows` rows together; square may be null, and y x.
struct MatrixPolynomial {
  std::int64_t rows = 0, n = 0;
  float a = 0, b = 0, c = 0;
  const void* x = nullptr;
  const void* square = nullptr;
  void* y = nullptr;
};
void launch_matrix_polynomial(Stream stream, core::DType dtype, const MatrixPolynomial& p);

}  // namespace rooflm::backends::cuda
