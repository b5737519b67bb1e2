// GELU and SwiGLU, forward and backward.
#include "backends/cpu/fast/activation.h"

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec_math.h"
#include "backends/cpu/resources.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

// Least elements per thread: with fewer a second thread does not pay off.
constexpr std::int64_t kGrain = 1024;

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)) with 2u = x (kLinear + kCubic x^2).
constexpr float kLinear = 1.59576912F;  // 2 sqrt(2/pi)
constexpr float kCubic = kLinear * 0.044715F;

template <class V>
ROOFLM_INLINE V gelu_exponent(const V& x) {
  return x * (x * x * -kCubic - kLinear);
}

template <class S>
std::int64_t bytes_of(std::int64_t n) {
  return n * static_cast<std::int64_t>(sizeof(S));
}

}  // namespace

template <Storage S>
void gelu_forward(std::int64_t n, const S* x, S* y) {
  const bool streams = x != y && is_streamed(bytes_of<S>(n));
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_bundles_to(y, streams, begin, end, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
      const auto in = load_at(x + i, group);
      store_at(y + i, in / (1.0F + exp<S>(gelu_exponent(in))), group);
    });
    if (streams) end_stream();
  });
}

template <Storage S>
void gelu_backward(std::int64_t n, const S* dy, const S* x, S* dx) {
  const bool streams = dx != x && dx != dy && is_streamed(bytes_of<S>(n));
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_bundles_to(dx, streams, begin, end, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
      // For large |x| the gate is 0 or 1. Clamping makes the second term vanish before in^3 can overflow into
      // inf * 0.
      const auto in =
          each([](Floats v) { return max(splat(-16.0F), min(splat(16.0F), v)); }, load_at(x + i, group));
      const auto gate = sigmoid_of_negative<S>(gelu_exponent(in));
      const auto slope = in * (in * in * (3 * kCubic) + kLinear);
      store_at(dx + i, load_at(dy + i, group) * (gate + gate * (1.0F - gate) * slope), group);
    });
    if (streams) end_stream();
  });
}

template <Storage S>
void swiglu_forward(std::int64_t rows, std::int64_t width, const S* x, S* y) {
  const bool streams = is_streamed(bytes_of<S>(rows * width));
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / width), [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const S* gate = x + r * 2 * width;
      const S* up = gate + width;
      S* out = y + r * width;
      for_bundles_to(out, streams, 0, width, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
        fetch(gate + 2 * width + i, group);
        fetch(up + 2 * width + i, group);
        const auto g = load_at(gate + i, group);
        store_at(out + i, g / (1.0F + exp<S>(-g)) * load_at(up + i, group), group);
      });
    }
    if (streams) end_stream();
  });
}

template <Storage S>
void swiglu_backward(std::int64_t rows, std::int64_t width, const S* dy, const S* x, S* dx) {
  const bool streams = dx != x && width * static_cast<std::int64_t>(sizeof(S)) % 64 == 0 &&
                       is_streamed(bytes_of<S>(rows * 2 * width));
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / width), [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const S* gate = x + r * 2 * width;
      const S* up = gate + width;
      S* d_gate = dx + r * 2 * width;
      S* d_up = d_gate + width;
      const S* d_out = dy + r * width;
      for_bundles_to(d_gate, streams, 0, width, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
        fetch(gate + 2 * width + i, group);
        fetch(up + 2 * width + i, group);
        const auto g = load_at(gate + i, group);
        const auto u = load_at(up + i, group);
        const auto d = load_at(d_out + i, group);
        const auto s = sigmoid_of_negative<S>(-g);
        store_at(d_gate + i, d * u * s * (1.0F + g * (1.0F - s)), group);
        store_at(d_up + i, d * g * s, group);
      });
    }
    if (streams) end_stream();
  });
}

namespace {

// Column sums are first taken over blocks of rows; the blocks depend only on the number of rows.
constexpr std::int64_t kMostBlocks = 64;
std::int64_t bias_block(std::int64_t rows) {
  return std::max<std::int64_t>(32, (rows + kMostBlocks - 1) / kMostBlocks);
}

// sums[j] = sum over rows [first, last) of dy[r, j], several rows at a time, so sums are seldom loaded and
// stored.
template <Storage S>
void sum_rows(std::int64_t first, std::int64_t last, std::int64_t cols, const S* dy, float* sums) {
  constexpr std::int64_t kRows = 4;
  std::fill(sums, sums + cols, 0.0F);
  for (std::int64_t r = first; r < last; r += kRows) {
    const S* x = dy + r * cols;
    const std::int64_t count = std::min(kRows, last - r);
    for_lanes(0, cols, [=](auto j, auto lanes) {
      // Prefetches the next rows: the hardware prefetcher stops at the end of a row.
      for (std::int64_t i = kRows; i < 2 * kRows; ++i) __builtin_prefetch(x + i * cols + j);
      Floats sum = load_at(sums + j, lanes);
      if (count == kRows) {
        sum += (load_at(x + j, lanes) + load_at(x + cols + j, lanes)) +
               (load_at(x + 2 * cols + j, lanes) + load_at(x + 3 * cols + j, lanes));
      } else {
        for (std::int64_t i = 0; i < count; ++i) sum += load_at(x + i * cols + j, lanes);
      }
      store_at(sums + j, sum, lanes);
    });
  }
}

}  // namespace

std::size_t bias_backward_scratch_bytes(std::int64_t rows, std::int64_t cols) {
  const std::int64_t block = bias_block(rows);
  return static_cast<std::size_t>((rows + block - 1) / block * cols) * sizeof(float);
}

template <Storage S>
void bias_backward(std::int64_t rows, std::int64_t cols, const S* dy, float* db, bool accumulate,
                   void* scratch) {
  auto* partial = static_cast<float*>(scratch);
  const std::int64_t block = bias_block(rows);
  const std::int64_t blocks = (rows + block - 1) / block;
  parallel_for(blocks, 1, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      sum_rows(b * block, std::min(rows, (b + 1) * block), cols, dy, partial + b * cols);
    }
  });
  parallel_for(cols, 8 * kLanes, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto j, auto count) {
      Floats sum = load_at(partial + j, count);
      for (std::int64_t b = 1; b < blocks; ++b) sum += load_at(partial + b * cols + j, count);
      store_at(db + j, accumulate ? load_at(db + j, count) + sum : sum, count);
    });
  });
}

template <Storage S>
void exp_array(std::int64_t n, const float* x, float* y) {
  for_bundles_to(y, false, 0, n, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    store_at(y + i, exp<S>(load_at(x + i, group)), group);
  });
}
void exp2_nonpositive_array(std::int64_t n, const float* x, float* y) {
  for_lanes(0, n, [=](auto i, auto count) {
    store_at(y + i, exp2_nonpositive<float, Floats>(load_at(x + i, count)), count);
  });
}
template <Storage S>
void sigmoid_array(std::int64_t n, const float* x, float* y) {
  for_bundles_to(y, false, 0, n, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    store_at(y + i, sigmoid_of_negative<S>(-load_at(x + i, group)), group);
  });
}

template void exp_array<float>(std::int64_t, const float*, float*);
template void exp_array<core::Bf16>(std::int64_t, const float*, float*);
template void sigmoid_array<float>(std::int64_t, const float*, float*);
template void sigmoid_array<core::Bf16>(std::int64_t, const float*, float*);
template void gelu_forward(std::int64_t, const float*, float*);
template void gelu_forward(std::int64_t, const core::Bf16*, core::Bf16*);
template void gelu_backward(std::int64_t, const float*, const float*, float*);
template void gelu_backward(std::int64_t, const core::Bf16*, const core::Bf16*, core::Bf16*);
template void swiglu_forward(std::int64_t, std::int64_t, const float*, float*);
template void swiglu_forward(std::int64_t, std::int64_t, const core::Bf16*, core::Bf16*);
template void swiglu_backward(std::int64_t, std::int64_t, const float*, const float*, float*);
template void swiglu_backward(std::int64_t, std::int64_t, const core::Bf16*, const core::Bf16*, core::Bf16*);
template void bias_backward(std::int64_t, std::int64_t, const float*, float*, bool, void*);
template void bias_backward(std::int64_t, std::int64_t, const core::Bf16*, float*, bool, void*);

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
  const bool has_more = v.op.attrs.flag("rebuilds") || v.op.attrs.flag("bias_gradient");
  if (has_more || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
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
  if (v.op.attrs.flag("rebuilds") || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
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
    const std::size_t scratch_bytes = bias_backward_scratch_bytes(rows, cols);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [=, accumulate = v.accumulates(), resources = v.context](const KernelArgs& args) {
      bias_backward(rows, cols, static_cast<const S*>(args.in[0]), static_cast<float*>(args.out[0]),
                    accumulate, resources->scratch().data());
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
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
