// Packed weights (core/packed_weights.h) on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// A matrix [rows, width] in device memory: its planes, and for nf4 what the codes of its scales mean, 256
/// floats in device memory.
struct PackedWeight {
  core::DType dtype{};
  std::int64_t rows = 0, width = 0;
  const void* data = nullptr;
  const float* scale_values = nullptr;
};

/// y [rows, width] in `to`: fp32, bf16 or fp16, rounded to nearest. Throws core::Unavailable for another
/// dtype and std::runtime_error if the launch fails.
void launch_unpack(Stream stream, const PackedWeight& weight, core::DType to, void* y);

}  // namespace rooflm::backends::cuda
