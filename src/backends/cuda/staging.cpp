// Small host-to-device copies that do not wait.
#include "backends/cuda/staging.h"

#include <fmt/format.h>

#include <cstring>

#include "backends/cuda/check.h"

namespace rooflm::backends::cuda {

bool Staging::copy_in(cudaStream_t stream, void* device, const void* host, std::size_t bytes) {
  if (bytes > kBufferBytes) return false;
  Buffer& buffer = ring_.at(next_);
  next_ = (next_ + 1) % kBuffers;
  if (buffer.data == nullptr) {
    buffer = {.data = make_pinned<std::byte>(kBufferBytes), .fetched = make_event()};
  } else {
    check(cudaEventSynchronize(buffer.fetched.get()), "waiting for a copy to the device");
  }
  std::memcpy(buffer.data.get(), host, bytes);
  if (const cudaError_t error =
          cudaMemcpyAsync(device, buffer.data.get(), bytes, cudaMemcpyHostToDevice, stream);
      error != cudaSuccess)
    check(error, fmt::format("copying {} bytes to the device, to {}", bytes, device));
  check(cudaEventRecord(buffer.fetched.get(), stream), "marking the end of a copy to the device");
  return true;
}

}  // namespace rooflm::backends::cuda
