// The operation graphs that cuDNN recognises as attention and its gradient, and their plans.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/cuda/cudnn_graph.h"
#include "backends/cuda/kernels/attention.h"

namespace rooflm::backends::cuda {

/// A part of an attention that one run of a plan computes: whole heads of some batch elements.
struct CudnnPart {
  std::int64_t batch, heads, kv_heads;
};

/// y = softmax(scale q k^T) v and lse, with the softmax written out. Throws core::Unavailable if no engine
/// supports the shape.
struct CudnnForwardPlan {
  CudnnValue q, k, v, y, lse;
  std::optional<CudnnPlan> plan;

  CudnnForwardPlan(const CudnnLibrary& library, const CudnnDescriptor& device, const AttentionShape& s,
                   cudnnDataType_t type);
};

/// With p = exp(scale q k^T - lse):
///   dv = p^T dy,  ds = scale p (dy v^T - rowsum(dy y)),  dq = ds k,  dk = ds^T q
/// Deterministic: ds is stored and read again for dq. Otherwise dq is accumulated in `sums`, fp32, in any
/// order. `delta` holds rowsum(dy y). Both are dense.
struct CudnnGradientPlan {
  CudnnValue q, k, v, y, dy, lse, dq, dk, dv, delta, sums;
  bool deterministic;
  std::optional<CudnnPlan> plan;

  CudnnGradientPlan(const CudnnLibrary& library, const CudnnDescriptor& device, const AttentionShape& s,
                    const CudnnPart& part, cudnnDataType_t type, bool is_deterministic);
};

}  // namespace rooflm::backends::cuda
