// The operation graphs that cuDNN recognises as attention and its gradient, and their plans.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/cuda/cudnn_graph.h"
#include "backends/cuda/kernels/attention/attention.h"

namespace rooflm::backends::cuda {

/// A part of an attention that one run of a plan computes: whole heads of some batch elements.
struct CudnnPart {
  std::int64_t batch, heads, kv_heads;
};

/// The lengths of the queries' and keys' sequences, int32 of each batch element. cuDNN wants a value for
/// each.
struct CudnnLengths {
  CudnnValue query, key;
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
/// order. `delta` holds rowsum(dy y). Both are dense. `lengths` are there if cuDNN has to be told them.
struct CudnnGradientPlan {
  CudnnValue q, k, v, y, dy, lse, dq, dk, dv, delta, sums;
  std::optional<CudnnLengths> lengths;
  bool deterministic;
  std::optional<CudnnPlan> plan;

  CudnnGradientPlan(const CudnnLibrary& library, const CudnnDescriptor& device, const AttentionShape& s,
                    const CudnnPart& part, cudnnDataType_t type, bool is_deterministic);
};

}  // namespace rooflm::backends::cuda
