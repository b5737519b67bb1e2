// A gate in a stream, which the host opens.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

/// A number in the host's memory that a stream waits for (cuStreamWaitValue32): no kernel, and nothing that
/// the device pays for once the gate is open.
class StreamGate {
 public:
  StreamGate();
  /// What is submitted to the stream from here on waits until `open`. The gate must be open, and nobody
  /// waiting. False, and nothing waits, where the driver has no such wait.
  [[nodiscard]] bool close(cudaStream_t stream);
  /// From any thread.
  void open();

 private:
  using WaitValue = int (*)(cudaStream_t, std::uintptr_t, std::uint32_t, unsigned int);
  PinnedArray<std::uint32_t> is_open_;  ///< a single one
  WaitValue wait_ = nullptr;
};

}  // namespace rooflm::backends::cuda
