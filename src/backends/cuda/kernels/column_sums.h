// Sums over rows, in two stages: bias_backward, and the second stage for kernels with partial sums of their
// own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// db[n] (+)= sum over rows of dy[r, n], dy [rows, cols] fp32 or bf16, db fp32, added to with `accumulate`.
/// `workspace` holds bias_backward_workspace_bytes, aligned to 16. Only submits; throws core::Unavailable for
/// another dtype, std::runtime_error when a launch is refused.
void launch_bias_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                          const void* dy, float* db, bool accumulate, void* workspace);
/// For the current device.
[[nodiscard]] std::size_t bias_backward_workspace_bytes(std::int64_t rows, std::int64_t cols);

/// out[c] (+)= sum over p of partials[p, c], p < count, in a fixed order; partials fp32 [count, cols].
/// The first `split` columns go to `out`, the rest to `rest` (split = cols: there is no rest).
void launch_sum_partials(Stream stream, std::int64_t count, std::int64_t cols, const float* partials,
                         std::int64_t split, float* out, float* rest, bool accumulate);

}  // namespace rooflm::backends::cuda
