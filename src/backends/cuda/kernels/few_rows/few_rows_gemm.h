// Matmuls of few rows, which take as long as their weight takes to be read: decoding.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/few_rows/packed_weight.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"
#include "devices/cuda_workspaces.h"

namespace rooflm::backends::cuda {

/// From more rows on cuBLASLt takes no longer for a plain weight, nor for one that was unpacked.
using devices::kMostPackedRows;
using devices::kMostPlainRows;

/// c [m, n] = a [m, k] w^T (+ bias [n]), sums in fp32. a is bf16 or fp16, `factors`; w [n, k] is of the same
/// dtype, or int8, int4, nf4 or fp8 with scales; c has the dtype of a, or is fp32; the bias is fp32 or has
/// the dtype of a. Kernels before this one must not write w: it may be read while they still run.
struct FewRowsGemm {
  core::DType factors{}, result{}, bias_dtype{};
  std::int64_t m = 0, n = 0, k = 0;
  PackedWeight weight;  // of `factors`, too
  const void* a = nullptr;
  const void* bias = nullptr;  // or absent
  void* c = nullptr;
};

/// Whether there is a kernel for it, addresses apart.
[[nodiscard]] bool has_few_rows_gemm(const FewRowsGemm& gemm);
/// One launch. Addresses are multiples of 16 bytes. Throws std::runtime_error if it fails.
void launch_few_rows_gemm(Stream stream, const FewRowsGemm& gemm, int multiprocessors);

}  // namespace rooflm::backends::cuda
