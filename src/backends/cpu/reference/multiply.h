// GEMM by Eigen, compiled once in matmul.cpp for all kernels that need it.
#pragma once

#include <cstdint>

namespace rooflm::backends::cpu::reference {

/// A matrix in memory: row-major; if `transposed`, the transpose of what is stored row-major.
template <class T>
struct Matrix {
  T* data;
  std::int64_t stride;  ///< elements from one stored row to the next
  bool transposed = false;
};

/// c [m, n] (+)= a [m, k] b [k, n], += with `accumulate`. c is not transposed and overlaps neither operand.
/// C: float or double. Eigen spreads it over the threads, except inside a parallel region.
template <class C>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<const C>& a,
              const Matrix<const C>& b, const Matrix<C>& c, bool accumulate = false);

}  // namespace rooflm::backends::cpu::reference
