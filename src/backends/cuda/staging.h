// Small copies to the device that nobody waits for: by way of pinned memory, in turn.
#pragma once

#include <array>
#include <cstddef>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A ring of pinned buffers. What is copied lies in one of them when `copy_in` returns, so that the caller
/// may reuse its memory and submit work at once, while the device fetches it; a buffer is used again when the
/// device has. Inputs of a step travel so: the host goes on to submit the step.
class Staging {
 public:
  /// False when `bytes` are too many for a buffer: nothing was done. In stream order.
  bool copy_in(cudaStream_t stream, void* device, const void* host, std::size_t bytes);

 private:
  static constexpr std::size_t kBuffers = 8;
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
  struct Buffer {
    PinnedArray<std::byte> data;
    EventHandle fetched;
  };
  std::array<Buffer, kBuffers> ring_;
  std::size_t next_ = 0;
};

}  // namespace rooflm::backends::cuda
