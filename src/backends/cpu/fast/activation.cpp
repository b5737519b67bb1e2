// GELU and SwiGLU, forward and backward.
#include "backends/cpu/fast/activation.h"

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::int64_t kGrain = 1024;  // elements below which a second thread does not pay

// 0.5 (1 + tanh(u)) = sigmoid(2u) with 2u = x (kLinear + kCubic x^2).
constexpr float kLinear = 1.59576912F;  // 2 sqrt(2/pi)
constexpr float kCubic = kLinear * 0.044715F;

ROOFLM_INLINE F32x16 gelu_gate(F32x16 x) { return sigmoid(x * (x * x * kCubic + kLinear)); }

}  // namespace

template <Storage S>
void gelu_forward(std::int64_t n, const S* x, S* y) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      const F32x16 in = load_at(x + i, count);
      store_at(y + i, in * gelu_gate(in), count);
    });
  });
}

template <Storage S>
void gelu_backward(std::int64_t n, const S* dy, const S* x, S* dx) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      const F32x16 in = load_at(x + i, count);
      const F32x16 gate = gelu_gate(in);
      // Far out the gate is 0 or 1 and the second term vanishes before in^3 can overflow into inf * 0.
      const F32x16 near = max(splat(-16.0F), in < 16.0F ? in : splat(16.0F));
      const F32x16 inner = near * (near * near * (3 * kCubic) + kLinear);
      store_at(dx + i, load_at(dy + i, count) * (gate + gate * (1.0F - gate) * inner), count);
    });
  });
}

template <Storage S>
void swiglu_forward(std::int64_t rows, std::int64_t width, const S* x, S* y) {
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / width), [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const S* gate = x + r * 2 * width;
      const S* up = gate + width;
      S* out = y + r * width;
      for_lanes(0, width, [=](auto i, auto count) {
        const F32x16 g = load_at(gate + i, count);
        store_at(out + i, g * sigmoid(g) * load_at(up + i, count), count);
      });
    }
  });
}

template <Storage S>
void swiglu_backward(std::int64_t rows, std::int64_t width, const S* dy, const S* x, S* dx) {
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / width), [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const S* gate = x + r * 2 * width;
      const S* up = gate + width;
      S* d_gate = dx + r * 2 * width;
      S* d_up = d_gate + width;
      const S* d_out = dy + r * width;
      for_lanes(0, width, [=](auto i, auto count) {
        const F32x16 g = load_at(gate + i, count);
        const F32x16 u = load_at(up + i, count);
        const F32x16 d = load_at(d_out + i, count);
        const F32x16 s = sigmoid(g);
        store_at(d_gate + i, d * u * s * (1.0F + g * (1.0F - s)), count);
        store_at(d_up + i, d * g * s, count);
      });
    }
  });
}

template <Storage S>
void bias_backward(std::int64_t rows, std::int64_t cols, const S* dy, float* db, bool accumulate) {
  // Threads share out the columns, so every sum is made by one thread, in blocks of rows that stay in cache.
  constexpr std::int64_t kRows = 8;
  parallel_for(cols, 4 * kLanes, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < rows; r += kRows) {
      const std::int64_t last = std::min(rows, r + kRows);
      const bool keep = accumulate || r > 0;
      for_lanes(begin, end, [=](auto j, auto count) {
        F32x16 sum = load_at(dy + r * cols + j, count);
        for (std::int64_t i = r + 1; i < last; ++i) sum += load_at(dy + i * cols + j, count);
        store_at(db + j, keep ? load_at(db + j, count) + sum : sum, count);
      });
    }
  });
}

void exp_array(std::int64_t n, const float* x, float* y) {
  for_lanes(0, n, [=](auto i, auto count) { store_at(y + i, exp(load_at(x + i, count)), count); });
}
void exp2_nonpositive_array(std::int64_t n, const float* x, float* y) {
  for_lanes(0, n,
            [=](auto i, auto count) { store_at(y + i, exp2_nonpositive(load_at(x + i, count)), count); });
}
void sigmoid_array(std::int64_t n, const float* x, float* y) {
  for_lanes(0, n, [=](auto i, auto count) { store_at(y + i, sigmoid(load_at(x + i, count)), count); });
}

template void gelu_forward(std::int64_t, const float*, float*);
template void gelu_forward(std::int64_t, const core::Bf16*, core::Bf16*);
template void gelu_backward(std::int64_t, const float*, const float*, float*);
template void gelu_backward(std::int64_t, const core::Bf16*, const core::Bf16*, core::Bf16*);
template void swiglu_forward(std::int64_t, std::int64_t, const float*, float*);
template void swiglu_forward(std::int64_t, std::int64_t, const core::Bf16*, core::Bf16*);
template void swiglu_backward(std::int64_t, std::int64_t, const float*, const float*, float*);
template void swiglu_backward(std::int64_t, std::int64_t, const core::Bf16*, const core::Bf16*, core::Bf16*);
template void bias_backward(std::int64_t, std::int64_t, const float*, float*, bool);
template void bias_backward(std::int64_t, std::int64_t, const core::Bf16*, float*, bool);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {

Kernel make_gelu(const OpView& v) {
  if (!v.outputs_are({0}, v.in(0).dtype)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n](const KernelArgs& args) {
      gelu_forward(n, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_gelu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n](const KernelArgs& args) {
      gelu_backward(n, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                    static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_swiglu(const OpView& v) {
  if (!v.outputs_are({0}, v.in(0).dtype)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t width = v.in(0).shape[-1] / 2;
    const std::int64_t rows = v.in(0).shape.numel() / (2 * width);
    return [=](const KernelArgs& args) {
      swiglu_forward(rows, width, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_swiglu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t width = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / width;
    return [=](const KernelArgs& args) {
      swiglu_backward(rows, width, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                      static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_bias_backward(const OpView& v) {
  if (!v.outputs_are({0}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t cols = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / cols;
    return [=, accumulate = v.accumulates()](const KernelArgs& args) {
      bias_backward(rows, cols, static_cast<const S*>(args.in[0]), static_cast<float*>(args.out[0]),
                    accumulate);
    };
  });
}

MakerRows activation_rows() {
  namespace ops = program::ops;
  return {{&ops::kGelu, make_gelu, "gelu_forward"},
          {&ops::kGeluBackward, make_gelu_backward, "gelu_backward"},
          {&ops::kSwiGlu, make_swiglu, "swiglu_forward"},
          {&ops::kSwiGluBackward, make_swiglu_backward, "swiglu_backward"},
          {&ops::kBiasBackward, make_bias_backward, "bias_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
