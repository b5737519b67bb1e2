// GELU and its gradient for one element: y = x s, s = (1 + tanh(u)) / 2 = sigmoid(2u), u = sqrt(2/pi) (x +
// 0.044715 x^3). Then gelu' = s + x s (1 - s) 2u', 2u' = 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2).
#pragma once

namespace rooflm::backends::cuda {

constexpr float kGeluSlope = 2 * 0.7978845608028654F;  // of 2u at 0
constexpr float kGeluCubic = kGeluSlope * 0.044715F;

/// s for results kept in T: accurate to the last bits if that is fp32, otherwise of approximate instructions.
template <class T>
__device__ float gelu_sigmoid(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return 1.0F / (1.0F + expf(-x * (kGeluSlope + kGeluCubic * (x * x))));
  } else {
    constexpr float kLog2E = 1.4426950408889634F;
    constexpr float kMost = 115;  // 2^115 is finite, and so is 1 + 2^115
    float power, result;
    asm("ex2.approx.ftz.f32 %0, %1;"
        : "=f"(power)
        : "f"(fminf(x * (-kLog2E * kGeluSlope - kLog2E * kGeluCubic * (x * x)), kMost)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0F + power));
    return result;
  }
}

template <class T>
struct Gelu {
  __device__ float operator()(float x) const { return x * gelu_sigmoid<T>(x); }
};

/// gelu'(x) with s of x. Beyond +-16 s is 0 or 1, so the second term is 0; x is clamped there, because x^2
/// may overflow and inf * 0 is NaN. A NaN stays one.
__device__ inline float gelu_slope(float x, float s) {
  constexpr float kFlat = 16;
  x = x > kFlat ? kFlat : (x < -kFlat ? -kFlat : x);
  return s + (s - s * s) * (x * (kGeluSlope + 3 * kGeluCubic * (x * x)));
}

}  // namespace rooflm::backends::cuda
