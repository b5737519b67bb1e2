// Stub for builds without cuDNN's headers: attention runs on rooflm's own kernels.
#include "backends/cuda/cudnn_attention.h"

#include "backends/cuda/cuda_backend.h"

namespace rooflm::backends::cuda {

class CudnnAttention::Library {};

CudnnAttention::CudnnAttention(int /*device*/, cudaStream_t /*stream*/) {}
CudnnAttention::~CudnnAttention() = default;

CudnnAttention::Key CudnnAttention::key(const AttentionShape& s, core::DType dtype) {
  return {s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.rules.window, s.rules.scale, dtype};
}

const CudnnForward& CudnnAttention::forward(const AttentionShape& shape, core::DType dtype) {
  return forwards_[key(shape, dtype)];
}

const CudnnGradient& CudnnAttention::gradient(const AttentionShape& shape, core::DType dtype,
                                              GradientOrder order) {
  return gradients_[{key(shape, dtype), order.deterministic, order.score_bytes}];
}

CudnnStatus query_cudnn() { return {.version = {}, .reason = "built without cudnn_graph.h"}; }

}  // namespace rooflm::backends::cuda
