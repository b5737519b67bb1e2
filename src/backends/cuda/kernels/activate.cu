// activate of all kinds, scale_cap, and their gradients: eight elements per thread.
#include "backends/cuda/kernels/activate.h"
#include "backends/cuda/kernels/chain.cuh"
#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/gelu.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/swiglu.cuh"

namespace rooflm::backends::cuda {
namespace {

using program::Activation;

constexpr int kSumBlocks = 512;  // of the gradient of xIELU's weights

constexpr auto kMost = static_cast<float>(program::kClipped);
constexpr auto kSlope = static_cast<float>(program::kClippedSlope);
constexpr auto kBelow = static_cast<float>(program::kXieluBelow);
constexpr auto kLinear = static_cast<float>(program::kXieluLinear);

/// p and n of xIELU, of its weights.
struct Xielu {
  float positive = 0, negative = 0;
  __device__ static float softplus(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }
  __device__ static float factor(float x) { return expm1f(fminf(x, kBelow)) - x; }
  __device__ static Xielu of(const float* w) {
    if (w == nullptr) return {};
    return {softplus(w[0]), kLinear + softplus(w[1])};
  }
};

struct Point {
  float value, slope;
};

/// f(x) and f'(x), for results kept in T.
template <Activation kKind, class T>
__device__ Point point_of(float x, const Xielu& xielu) {
  if constexpr (kKind == Activation::gelu_tanh) {
    const float s = gelu_sigmoid<T>(x);
    return {x * s, gelu_slope(x, s)};
  } else if constexpr (kKind == Activation::gelu) {
    const float gate = normcdff(x);
    const float flat = fminf(fmaxf(x, -16.0F), 16.0F);  // inf * 0 is NaN
    return {x * gate, gate + flat * 0.398942280F * expf(-0.5F * flat * flat)};
  } else if constexpr (kKind == Activation::silu) {
    const float s = sigmoid<T>(x);
    return {x * s, s * (1 + x * (1 - s))};
  } else if constexpr (kKind == Activation::relu) {
    return {fmaxf(x, 0.0F), x > 0 ? 1.0F : 0.0F};
  } else if constexpr (kKind == Activation::relu2) {
    const float positive = fmaxf(x, 0.0F);
    return {positive * positive, 2 * positive};
  } else if constexpr (kKind == Activation::xielu) {
    if (x > 0) return {(xielu.positive * x + kLinear) * x, 2 * xielu.positive * x + kLinear};
    const float rise = x < kBelow ? expf(x) : 0.0F;
    return {xielu.negative * Xielu::factor(x) + kLinear * x, xielu.negative * (rise - 1) + kLinear};
  } else {
    const float g = fminf(x, kMost);
    const float s = sigmoid<T>(kSlope * g);
    return {g * s, x <= kMost ? s * (1 + kSlope * g * (1 - s)) : 0.0F};
  }
}

/// What f(gate) is multiplied with, and its slope.
template <Activation kKind>
__device__ Point up_of(float up) {
  if constexpr (kKind != Activation::clipped_swiglu) return {up, 1.0F};
  return {fminf(fmaxf(up, -kMost), kMost) + 1, fabsf(up) <= kMost ? 1.0F : 0.0F};
}

template <Activation kKind, class T>
__global__ void __launch_bounds__(kElementThreads) activate(Activate a, bool aligned, const T* h, T* y) {
  follow_previous();
  const Place at(own_pack(), a.width);
  if (at.row >= a.rows) return;
  const Xielu xielu = Xielu::of(a.weights);
  const T* row = h + at.row * (a.is_gated ? 2 : 1) * a.width;
  Pack result = load_pack(row, at.col, a.width, aligned);
  Pack up{};
  if (a.is_gated) up = load_pack(row + a.width, at.col, a.width, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    result[i] = point_of<kKind, T>(result[i], xielu).value;
    if (a.is_gated) result[i] *= up_of<kKind>(up[i]).value;
  }
  store_pack(y + at.row * a.width, at.col, a.width, aligned, result);
}

template <Activation kKind, class T>
__global__ void __launch_bounds__(kElementThreads)
    activate_backward(Activate a, bool aligned, const T* dy, const T* h, T* dh) {
  const Place at(own_pack(), a.width);
  if (at.row >= a.rows) return;
  const Xielu xielu = Xielu::of(a.weights);
  const std::int64_t begin = at.row * (a.is_gated ? 2 : 1) * a.width;
  const Pack d = load_pack(dy + at.row * a.width, at.col, a.width, aligned);
  Pack gate = load_pack(h + begin, at.col, a.width, aligned);
  Pack up{};
  if (a.is_gated) up = load_pack(h + begin + a.width, at.col, a.width, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const Point f = point_of<kKind, T>(gate[i], xielu);
    const Point u = a.is_gated ? up_of<kKind>(up[i]) : Point{1.0F, 0.0F};
    gate[i] = d[i] * u.value * f.slope;
    up[i] = d[i] * f.value * u.slope;
  }
  store_pack(dh + begin, at.col, a.width, aligned, gate);
  if (a.is_gated) store_pack(dh + begin + a.width, at.col, a.width, aligned, up);
}

/// partials [blocks, 2]: sums of dy x^2 where x > 0 and of dy times n's factor elsewhere, times the slopes of
/// p and n.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    xielu_sums(std::int64_t count, const float* w, const T* dy, const T* h, float* partials) {
  float2 sums{0, 0};
  const std::int64_t step = std::int64_t{gridDim.x} * kElementThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x; i < count; i += step) {
    const float x = to_float(h[i]);
    const float d = to_float(dy[i]);
    if (x > 0) {
      sums.x += d * x * x;
    } else {
      sums.y += d * Xielu::factor(x);
    }
  }
  sums = block_sum(sums);
  if (threadIdx.x > 0) return;
  partials[2 * blockIdx.x] = sums.x / (1 + expf(-w[0]));
  partials[2 * blockIdx.x + 1] = sums.y / (1 + expf(-w[1]));
}

/// factor x, or cap tanh(factor x / cap).
struct ScaleCap {
  float factor, cap;
  __device__ float operator()(float x) const { return cap > 0 ? cap * tanhf(factor * x / cap) : factor * x; }
};

/// factor dy (1 - tanh(factor x / cap)^2)
struct ScaleCapGradient {
  float factor, cap;
  __device__ float operator()(float dy, float x) const {
    const float t = tanhf(factor * x / cap);
    return factor * dy * (1 - t * t);
  }
};

}  // namespace

void launch_activate(Stream stream, const Activate& a, const void* h, void* y) {
  if (a.rows == 0) return;
  with_element(a.dtype, "activate", [&]<class T>(T) {
    program::with_activation(a.kind, [&]<Activation kKind>() {
      const bool aligned = a.width % kPack == 0 && are_aligned({h, y});
      launch_chained(stream, "activate", activate<kKind, T>, dim3(row_blocks(a.rows, a.width, "activate")),
                     kElementThreads, 0, a, aligned, static_cast<const T*>(h), static_cast<T*>(y));
    });
  });
}

void launch_activate_backward(Stream stream, const Activate& a, const void* dy, const void* h, void* dh,
                              float* dweights, bool accumulate, float* workspace) {
  if (a.rows == 0) return;
  with_element(a.dtype, "activate_backward", [&]<class T>(T) {
    if (dweights != nullptr) {  // before dh, which may be h
      xielu_sums<T><<<kSumBlocks, kElementThreads, 0, stream>>>(
          a.rows * a.width, a.weights, static_cast<const T*>(dy), static_cast<const T*>(h), workspace);
    }
    program::with_activation(a.kind, [&]<Activation kKind>() {
      const bool aligned = a.width % kPack == 0 && are_aligned({dy, h, dh});
      activate_backward<kKind, T>
          <<<row_blocks(a.rows, a.width, "activate_backward"), kElementThreads, 0, stream>>>(
              a, aligned, static_cast<const T*>(dy), static_cast<const T*>(h), static_cast<T*>(dh));
    });
  });
  check_launch("activate_backward");
  if (dweights == nullptr) return;
  launch_sum_partials(stream, kSumBlocks, workspace, {.cols = 2, .arrays = 1, .out = {dweights}}, accumulate);
}

std::size_t activate_workspace_bytes() { return 2 * kSumBlocks * sizeof(float); }

void launch_scale_cap(Stream stream, std::int64_t count, float factor, float cap, core::DType from,
                      const void* x, core::DType to, void* y) {
  with_element(from, "scale_cap", [&]<class In>(In) {
    with_element(to, "scale_cap", [&]<class Out>(Out) {
      launch_map(stream, "scale_cap", count, ScaleCap{factor, cap}, static_cast<Out*>(y),
                 static_cast<const In*>(x));
    });
  });
}

void launch_scale_cap_backward(Stream stream, core::DType dtype, std::int64_t count, float factor, float cap,
                               const void* dy, const void* x, void* dx) {
  with_element(dtype, "scale_cap_backward", [&]<class T>(T) {
    launch_map(stream, "scale_cap_backward", count, ScaleCapGradient{factor, cap}, static_cast<T*>(dx),
               static_cast<const T*>(dy), static_cast<const T*>(x));
  });
}

}  // namespace rooflm::backends::cuda
