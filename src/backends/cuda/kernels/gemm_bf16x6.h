// GEMMs of fp32 factors on Hopper's bf16 matrix instructions.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

///   c[i] (+)= op(a[i]) op(b[i]) (+ bias)   for i < batch
/// All fp32 and row-major: a is [m, k], stored [k, m] with trans_a; b is [k, n], stored [n, k] with trans_b;
/// c is [m, n]; bias [n] is added to every row. Row strides are in elements; matrices of a batch lie behind
/// each other.
///
/// Each factor is the exact sum of three bf16 numbers (24 bits of mantissa are 3 x 8), and of the nine
/// products the six largest are computed: what is left out is below 2^-22 of a product. Sums over 32 elements
/// of k come from the tensor cores, which truncate; they are added up in fp32, rounded to nearest. So a
/// result is as close to the exact one as with fp32 multiply-adds; it differs where a factor is infinite (the
/// result is NaN), and where factors are below 2^-110, whose last bits bf16 has no numbers for.
struct Bf16x6Gemm {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;  ///< or null
  bool accumulate = false;
  /// k is summed in so many parts (devices::bf16x6_parts), which are then added in order.
  std::int64_t parts = 1;
  float* workspace = nullptr;  ///< parts x batch x m x n, if there are several parts
  int multiprocessors = 0;     ///< that it may use
};

/// Whether the current device has the instructions, and this build their code. Throws std::runtime_error if
/// the driver does not say.
[[nodiscard]] bool has_bf16x6();

/// Only submits. Throws std::runtime_error if the launch fails.
void launch_bf16x6_gemm(Stream stream, const Bf16x6Gemm& gemm);

}  // namespace rooflm::backends::cuda
