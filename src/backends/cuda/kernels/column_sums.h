// Sums over rows in two stages: bias_backward, and the second stage for kernels with their own partial sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// db[n] (+)= sum over rows of dy[r, n], += with `accumulate`; dy [rows, cols] fp32 or bf16, db fp32 [cols].
/// `workspace` has bias_backward_workspace_bytes bytes, aligned to 16. Only submits. Throws core::Unavailable
/// for another dtype, std::runtime_error if a launch fails.
void launch_bias_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                          const void* dy, float* db, bool accumulate, void* workspace);
/// For the current device: partial_count sums of each column.
[[nodiscard]] std::size_t bias_backward_workspace_bytes(std::int64_t rows, std::int64_t cols);

/// Number of sums that the first stage makes of a column: it gives every multiprocessor its blocks.
[[nodiscard]] std::int64_t partial_count(std::int64_t rows, std::int64_t cols);

/// Where sums of partials go: `arrays` results of `cols` columns each; to null none.
struct SumTargets {
  std::int64_t cols = 0;
  int arrays = 1;
  float* out[3] = {};
};
/// out[a][c] (+)= sum over p < count of partials[p, a, c], in a fixed order; partials fp32 [count, arrays,
/// cols].
void launch_sum_partials(Stream stream, std::int64_t count, const float* partials, const SumTargets& targets,
                         bool accumulate);

}  // namespace rooflm::backends::cuda
