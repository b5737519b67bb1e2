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
/// For the current device.
[[nodiscard]] std::size_t bias_backward_workspace_bytes(std::int64_t rows, std::int64_t cols);

/// out[c] (+)= sum over p < count of partials[p, c], in a fixed order; partials fp32 [count, cols]. The first
/// `split` columns go to `out`, the others to `rest` (none if split = cols).
void launch_sum_partials(Stream stream, std::int64_t count, std::int64_t cols, const float* partials,
                         std::int64_t split, float* out, float* rest, bool accumulate);

}  // namespace rooflm::backends::cuda
