// Launchers of the kernels of attention that take any head size up to kMaxHeadDim, fp32 and bf16.
#pragma once

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// As launch_flash_attention.
void launch_attention_forward_simple(Stream stream, core::DType dtype, const AttentionShape& shape,
                                     const void* qkv, void* y, float* lse);
/// As launch_flash_attention_backward; delta [B, H, T] is rowsum(dy y).
void launch_attention_backward_simple(Stream stream, core::DType dtype, const AttentionShape& shape,
                                      const void* dy, const void* qkv, const float* lse, const float* delta,
                                      void* dqkv);

}  // namespace rooflm::backends::cuda
