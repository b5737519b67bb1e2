// Matmuls of experts: rows that are sorted by expert, times the weights of each.
//
// Which rows an expert has is read from `offsets` on the device, so launchers only submit, and steps with
// them can be recorded. Every sum has one order. They throw core::Unavailable for dtypes without a kernel.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// c[r] = a[r] op(b[e]) for offsets[e] <= r < offsets[e + 1]. All are row-major.
struct GroupedMatmul {
  core::DType factors = core::DType::f32;  ///< fp32, bf16 or fp16
  core::DType result = core::DType::f32;   ///< fp32, or that of the factors
  std::int64_t experts = 0, rows = 0, n = 0, k = 0;
  bool trans_b = false;
  const void* a = nullptr;                ///< [rows, k]
  const void* b = nullptr;                ///< [experts, k, n], with trans_b [experts, n, k]
  const std::int32_t* offsets = nullptr;  ///< [experts + 1]
  void* c = nullptr;                      ///< [rows, n]
  int multiprocessors = 0;                ///< that it may use; 0: all
};
void launch_grouped_matmul(Stream stream, const GroupedMatmul& product);

/// c[e] (+)= (rows of e of a)^T (rows of e of b); zero for an expert without rows, unless accumulated.
struct GroupedMatmulWeight {
  core::DType factors = core::DType::f32;
  core::DType result = core::DType::f32;
  std::int64_t experts = 0, rows = 0, m = 0, n = 0;
  bool accumulate = false;
  const void* a = nullptr;                ///< [rows, m]
  const void* b = nullptr;                ///< [rows, n]
  const std::int32_t* offsets = nullptr;  ///< [experts + 1]
  void* c = nullptr;                      ///< [experts, m, n]
  int multiprocessors = 0;                ///< that it may use; 0: all
};
void launch_grouped_matmul_weight(Stream stream, const GroupedMatmulWeight& product);

}  // namespace rooflm::backends::cuda
