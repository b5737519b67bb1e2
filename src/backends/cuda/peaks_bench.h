// Shared by the micro-benchmarks of a GPU: a stream, memory and two events. Private to the room.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backends/cuda/check.h"
#include "backends/cuda/context.h"

namespace rooflm::backends::cuda {

/// A context with memory to walk through, and two events. Loops keep it alive.
class Bench {
 public:
  Bench(int index, std::size_t bytes)
      : context_(index, {}), memory_(context_.allocate(bytes)), begin_(make_event()), end_(make_event()) {
    check(cudaMemsetAsync(memory_.data(), 0, bytes, stream()), "filling memory");
    context_.synchronize();
  }
  [[nodiscard]] cudaStream_t stream() const { return context_.stream(); }
  [[nodiscard]] float* floats(std::int64_t first) const {
    return static_cast<float*>(memory_.data()) + first;
  }
  [[nodiscard]] int sm_count() const { return context_.sm_count(); }
  /// Device seconds of what `submit` submits.
  template <class Submit>
  [[nodiscard]] double time_s(Submit&& submit) const {
    context_.select();
    check(cudaEventRecord(begin_.get(), stream()), "timing a loop");
    submit(stream());
    check(cudaEventRecord(end_.get(), stream()), "timing a loop");
    context_.synchronize();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "timing a loop");
    constexpr double kMs = 1e-3;
    return static_cast<double>(ms) * kMs;
  }

 private:
  Context context_;
  DeviceMemory memory_;
  EventHandle begin_, end_;
};

}  // namespace rooflm::backends::cuda
