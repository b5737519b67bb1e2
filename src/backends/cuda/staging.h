// Small host-to-device copies that do not wait, through pinned memory.
#pragma once

#include <array>
#include <cstddef>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A ring of pinned buffers. `copy_in` copies into one of them, so the caller may reuse its memory and submit
/// work at once while the device fetches the data. A buffer is reused after the device has fetched it. Inputs
/// of a step use this, so the host can go on to submit the step.
class Staging {
 public:
  /// In stream order. Returns false, having done nothing, if `bytes` exceeds a buffer.
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
