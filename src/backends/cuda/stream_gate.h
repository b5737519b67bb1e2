// A gate in a stream, opened by the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A number in pinned host memory that a stream waits for (cuStreamWaitValue32): no kernel, and no cost for
/// the device once the gate is open.
class StreamGate {
 public:
  StreamGate();
  /// Later submissions to the stream wait until `open`. The gate must be open, and nothing may be waiting for
  /// it. Returns false, and nothing waits, if the driver lacks stream memory operations.
  [[nodiscard]] bool close(cudaStream_t stream);
  /// May be called from any thread.
  void open();

 private:
  using WaitValue = int (*)(cudaStream_t, std::uintptr_t, std::uint32_t, unsigned int);
  PinnedArray<std::uint32_t> is_open_;  ///< a single element
  WaitValue wait_ = nullptr;
};

}  // namespace rooflm::backends::cuda
