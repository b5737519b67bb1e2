// Pointers to bf16 or fp16, distinguished at run time: where elements are converted on their way to shared
// memory, one kernel for both costs nothing.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// Bits: unsigned short or const unsigned short.
template <class Bits>
struct HalfPointer {
  Bits* bits;
  bool is_bf16;

  [[nodiscard]] __device__ HalfPointer operator+(std::int64_t elements) const {
    return {bits + elements, is_bf16};
  }
  [[nodiscard]] __device__ float operator[](std::int64_t i) const {
    const unsigned short element = bits[i];
    return is_bf16 ? __uint_as_float(unsigned{element} << 16) : __half2float(__ushort_as_half(element));
  }
};

__device__ inline void store_element(float* to, std::int64_t i, float x) { to[i] = x; }
__device__ inline void store_element(HalfPointer<unsigned short> to, std::int64_t i, float x) {
  to.bits[i] = to.is_bf16 ? __bfloat16_as_ushort(from_float<bf16>(x)) : __half_as_ushort(from_float<fp16>(x));
}

/// Calls body with functions that make pointers of inputs and of outputs, to fp32 or to halves. Throws
/// core::Unavailable if there is no kernel for the dtype.
template <class Body>
void with_pointers(core::DType dtype, const char* what, Body&& body) {
  with_element(dtype, what, [](auto) {});
  if (dtype == core::DType::f32) {
    return body([](const void* from) { return static_cast<const float*>(from); },
                [](void* to) { return static_cast<float*>(to); });
  }
  const bool is_bf16 = dtype == core::DType::bf16;
  body(
      [=](const void* from) {
        return HalfPointer<const unsigned short>{static_cast<const unsigned short*>(from), is_bf16};
      },
      [=](void* to) {
        return HalfPointer<unsigned short>{static_cast<unsigned short*>(to), is_bf16};
      });
}

}  // namespace rooflm::backends::cuda
