// Runs y = a*x + y on a device to check that it executes the code of this binary.
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/faults.h"
#include "backends/cuda/kernels/device_probe.h"

namespace rooflm::backends::cuda {
namespace {

constexpr std::int64_t kCount = 4099;  // not a multiple of the block, so the bounds check is exercised
constexpr int kThreads = 256;
constexpr float kScale = 0.5F;

__global__ void axpy(float a, const float* x, float* y, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + y[i];
}

struct DeviceFree {
  void operator()(float* pointer) const noexcept { cudaFree(pointer); }
};
using DeviceArray = std::unique_ptr<float, DeviceFree>;

// The first failure in a sequence of calls; later calls are skipped.
class Sequence {
 public:
  template <typename Call>
  Sequence& then(const char* what, Call call) {
    if (!message_.empty()) return *this;
    if (const cudaError_t error = call(); error != cudaSuccess) {
      message_ = std::string(what) + ": " + explain(error);
      cudaGetLastError();  // clears the error
    }
    return *this;
  }
  std::string message() const { return message_; }

 private:
  std::string message_;
};

cudaError_t upload(DeviceArray& device, const std::vector<float>& host) {
  void* memory = nullptr;
  const std::size_t bytes = host.size() * sizeof(float);
  if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess) return error;
  device.reset(static_cast<float*>(memory));
  return cudaMemcpy(memory, host.data(), bytes, cudaMemcpyHostToDevice);
}

}  // namespace

std::string probe_device(int index) {
  std::vector<float> x(kCount), y(kCount, 1.0F), result(kCount);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  DeviceArray device_x, device_y;
  Sequence sequence;
  sequence.then("selecting the device", [&] { return cudaSetDevice(index); })
      .then("allocating", [&] { return upload(device_x, x); })
      .then("allocating", [&] { return upload(device_y, y); })
      .then("launching a kernel",
            [&] {
              const int blocks = static_cast<int>((kCount + kThreads - 1) / kThreads);
              axpy<<<blocks, kThreads>>>(kScale, device_x.get(), device_y.get(), kCount);
              return cudaGetLastError();
            })
      .then("running a kernel", [&] {
        return cudaMemcpy(result.data(), device_y.get(), result.size() * sizeof(float),
                          cudaMemcpyDeviceToHost);
      });
  if (!sequence.message().empty()) return sequence.message();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (result[i] != kScale * x[i] + y[i]) return "a kernel ran, but its results are wrong";
  }
  return {};
}

}  // namespace rooflm::backends::cuda
