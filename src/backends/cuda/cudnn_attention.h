// Flash attention through cuDNN, planned once per shape, on the operands of kernels/attention.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "backends/cuda/kernels/attention/attention.h"
#include "core/dtype.h"
#include "devices/cuda_workspaces.h"

namespace rooflm::backends::cuda {

/// As launch_flash_attention, with scratch memory. `submit` is empty if cuDNN has no engine.
struct CudnnForward {
  std::string engine{};  ///< "cudnn engine 4"
  std::size_t workspace_bytes = 0;
  std::function<void(const void* qkv, void* y, float* lse, void* workspace)> submit;
};

/// As launch_flash_attention_backward. `submit` is empty if cuDNN has no engine.
struct CudnnGradient {
  std::string engine{};
  std::size_t workspace_bytes = 0;
  std::function<void(const void* dy, const void* qkv, const void* y, const float* lse, void* dqkv,
                     void* workspace)>
      submit;
};

/// The order in which gradients are summed.
struct GradientOrder {
  /// The same bits every time: the gradients of scores, 2 B H T T bytes, go through memory.
  bool deterministic = true;
  /// At most this many bytes of them exist at a time. If those of a single key/value head exceed it, there is
  /// no engine.
  std::size_t score_bytes = devices::kScoreBytes;
};

/// cuDNN on one stream of the current device, if it is installed. What it returns must not outlive it.
class CudnnAttention {
 public:
  /// Does not throw without cuDNN.
  CudnnAttention(int device, cudaStream_t stream);
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  ~CudnnAttention();

  /// `submit` is empty if cuDNN is missing or has no engine: it supports bf16 and fp16, and head sizes that
  /// are a multiple of 8. Of shape.rules it looks at window and scale. Compiles on first use, so call it
  /// while a kernel is made.
  const CudnnForward& forward(const AttentionShape& shape, core::DType dtype);
  /// The same for the gradient; see GradientOrder.
  const CudnnGradient& gradient(const AttentionShape& shape, core::DType dtype, GradientOrder order);

 private:
  class Library;
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         float, core::DType>;
  static Key key(const AttentionShape& shape, core::DType dtype);
  std::unique_ptr<const Library> library_;  ///< nullptr: not installed
  std::map<Key, CudnnForward> forwards_;
  std::map<std::tuple<Key, bool, std::size_t>, CudnnGradient> gradients_;
};

}  // namespace rooflm::backends::cuda
