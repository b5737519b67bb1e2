// Matmuls of experts on Hopper's matrix instructions. Of kernels/ alone: grouped_gemm.h has the launchers.
#pragma once

#include "backends/cuda/kernels/experts/grouped_gemm.h"

namespace rooflm::backends::cuda {

/// Submits, and returns true, where the current device and this build have the instructions, factors have 16
/// bits, and rows begin at multiples of 16 bytes.
bool launch_grouped_matmul_sm90(Stream stream, const GroupedMatmul& product);
bool launch_grouped_matmul_weight_sm90(Stream stream, const GroupedMatmulWeight& product);

}  // namespace rooflm::backends::cuda
