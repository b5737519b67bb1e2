// SwiGLU and its gradient for eight elements, for the kernels that store them and those that cast them to
// fp8.
#pragma once

#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// 1 / (1 + exp(-x)); accurate to the last bits if the result is kept in fp32.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return 1.0F / (1.0F + expf(-x));
  } else {
    return __fdividef(1.0F, 1.0F + __expf(fminf(-x, 80.0F)));  // __fdividef gives 0 for divisors over 2^126
  }
}

/// silu(gate) * up
template <class T>
__device__ Pack swiglu_of(const Pack& gate, const Pack& up) {
  Pack result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) result[i] = gate[i] * sigmoid<T>(gate[i]) * up[i];
  return result;
}

/// d gate = dy * up * s * (1 + gate * (1 - s)), s = sigmoid(gate)
template <class T>
__device__ Pack swiglu_d_gate(const Pack& dy, const Pack& gate, const Pack& up) {
  Pack result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float s = sigmoid<T>(gate[i]);
    result[i] = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
  }
  return result;
}

/// d up = dy * silu(gate)
template <class T>
__device__ Pack swiglu_d_up(const Pack& dy, const Pack& gate) {
  Pack result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) result[i] = dy[i] * gate[i] * sigmoid<T>(gate[i]);
  return result;
}

/// The value of x after being stored as T.
template <class T>
__device__ Pack rounded_pack(Pack pack) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack[i] = rounded<T>(pack[i]);
  return pack;
}

}  // namespace rooflm::backends::cuda
