// A gate in a stream, opened by the host.
#include "backends/cuda/stream_gate.h"

#include "backends/cuda/driver_function.h"

namespace rooflm::backends::cuda {

StreamGate::StreamGate()
    : is_open_(make_pinned<std::uint32_t>(1)), wait_(driver_function<WaitValue>("cuStreamWaitValue32")) {}

bool StreamGate::close(cudaStream_t stream) {
  constexpr unsigned kUntilAtLeast = 0;
  if (wait_ == nullptr) return false;
  *static_cast<volatile std::uint32_t*>(is_open_.get()) = 0;
  return wait_(stream, reinterpret_cast<std::uintptr_t>(is_open_.get()), 1, kUntilAtLeast) == 0;
}

void StreamGate::open() { *static_cast<volatile std::uint32_t*>(is_open_.get()) = 1; }

}  // namespace rooflm::backends::cuda
