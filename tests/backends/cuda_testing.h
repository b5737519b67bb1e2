// What the tests of CUDA kernels share: device memory with guards behind it, values of an element type,
// closeness.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/kernels_file.h"
#include "core/dtype.h"
#include "core/f16.h"

namespace rooflm::tests {

/// Skips where there is no GPU.
class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = [] {
      const auto status = backends::cuda::query_cuda();
      return status.devices.empty() ? status.reason : std::string();
    }();
    if (!reason.empty()) GTEST_SKIP() << reason;
    backends::cuda::select_device(0);
  }
};

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

inline void check_cuda(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(error));
}

/// Device memory; whoever writes behind its end is found when it goes.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) : bytes_(bytes) {
    check_cuda(cudaMalloc(&data_, bytes_ + kGuard), "allocating");
    check_cuda(cudaMemset(data_, kFill, bytes_ + kGuard), "filling");
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() {
    std::vector<unsigned char> guard(kGuard);
    const cudaError_t error = cudaMemcpy(guard.data(), at(bytes_), kGuard, cudaMemcpyDeviceToHost);
    EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
    for (const unsigned char byte : guard) {
      if (byte == kFill) continue;
      ADD_FAILURE() << "written behind the end of " << bytes_ << " bytes";
      break;
    }
    cudaFree(data_);
  }
  [[nodiscard]] void* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kFill = 0x7b;  // as fp32 and bf16 a number too large for any tolerance
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// Numbers as a device array of fp32 or bf16. `shift` elements before the first make it unaligned.
class DeviceArray {
 public:
  DeviceArray(core::DType dtype, std::size_t count, std::size_t shift = 0)
      : dtype_(dtype), count_(count), shift_(shift * core::size_of(dtype)), memory_(shift_ + bytes()) {}
  DeviceArray(core::DType dtype, std::span<const double> values, std::size_t shift = 0)
      : DeviceArray(dtype, values.size(), shift) {
    write(values);
  }
  void write(std::span<const double> values) const {
    std::vector<std::byte> raw(bytes());
    for (std::size_t i = 0; i < count_; ++i) {
      const auto value = static_cast<float>(values[i]);
      const std::size_t size = core::size_of(dtype_);
      const std::uint16_t half = dtype_ == core::DType::f16 ? core::F16(value).bits : core::Bf16(value).bits;
      std::memcpy(raw.data() + i * size,
                  dtype_ == core::DType::f32 ? static_cast<const void*>(&value) : &half, size);
    }
    check_cuda(cudaMemcpy(data(), raw.data(), bytes(), cudaMemcpyHostToDevice), "copying in");
  }
  [[nodiscard]] std::vector<double> read() const {
    std::vector<std::byte> raw(bytes());
    check_cuda(cudaMemcpy(raw.data(), data(), bytes(), cudaMemcpyDeviceToHost), "copying out");
    std::vector<double> values(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      float value = 0;
      core::Bf16 half;
      core::F16 other;
      if (dtype_ == core::DType::f32) {
        std::memcpy(&value, raw.data() + i * sizeof(float), sizeof(float));
      } else if (dtype_ == core::DType::f16) {
        std::memcpy(&other, raw.data() + i * sizeof(other), sizeof(other));
        value = static_cast<float>(other);
      } else {
        std::memcpy(&half, raw.data() + i * sizeof(half), sizeof(half));
        value = static_cast<float>(half);
      }
      values[i] = static_cast<double>(value);
    }
    return values;
  }
  [[nodiscard]] void* data() const { return memory_.at(shift_); }
  [[nodiscard]] float* floats() const { return static_cast<float*>(data()); }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * core::size_of(dtype_); }
  core::DType dtype_;
  std::size_t count_, shift_;
  DeviceBytes memory_;
};

/// int32 ids on the device.
class DeviceIds {
 public:
  explicit DeviceIds(const std::vector<std::int32_t>& ids) : memory_(ids.size() * sizeof(std::int32_t)) {
    check_cuda(cudaMemcpy(memory_.at(0), ids.data(), memory_.bytes(), cudaMemcpyHostToDevice), "copying in");
  }
  [[nodiscard]] const std::int32_t* data() const { return static_cast<const std::int32_t*>(memory_.at(0)); }

 private:
  DeviceBytes memory_;
};

/// The number that a dtype keeps of `value`.
inline double stored(core::DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == core::DType::f32) return static_cast<double>(single);
  if (dtype == core::DType::f16) return static_cast<double>(static_cast<float>(core::F16(single)));
  return static_cast<double>(static_cast<float>(core::Bf16(single)));
}

/// Normal numbers, as `dtype` keeps them.
inline std::vector<double> random_values(core::DType dtype, std::int64_t count, unsigned seed,
                                         double size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, size);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = stored(dtype, normal(engine));
  return values;
}

/// Largest distance relative to |expected| + `floor`; NaN counts as infinite.
inline void expect_close(std::span<const double> actual, std::span<const double> expected, double tolerance,
                         double floor = 1) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0;
  std::size_t place = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double distance = std::abs(actual[i] - expected[i]) / (std::abs(expected[i]) + floor);
    if (std::isnan(distance)) distance = INFINITY;
    if (distance > worst) {
      worst = distance;
      place = i;
    }
  }
  EXPECT_LE(worst, tolerance) << "at " << place << " of " << actual.size() << ": " << actual[place]
                              << " instead of " << expected[place];
}

/// Of single elements: fp32 functions are right to a few units in the last place; bf16 results are rounded,
/// 2^-9, once more in the worst case where an intermediate is stored.
inline double tolerance_of(core::DType dtype) { return dtype == core::DType::f32 ? 2e-6 : 8e-3; }

/// Both element types, aligned and not.
inline void for_types(const std::function<void(core::DType, std::size_t)>& body) {
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      SCOPED_TRACE(std::string(core::name_of(dtype)) + (shift > 0 ? ", unaligned" : ""));
      body(dtype, shift);
    }
  }
}

}  // namespace rooflm::tests
