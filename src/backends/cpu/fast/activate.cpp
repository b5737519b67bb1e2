// activate of all kinds but xIELU, and scale_cap, forward and backward.
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec_math.h"
#include "backends/cpu/resources.h"
#include "program/activation.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

using program::Activation;

// Least elements per thread: with fewer a second thread does not pay off.
constexpr std::int64_t kGrain = 1024;

constexpr auto kMost = static_cast<float>(program::kClipped);

template <class V>
ROOFLM_INLINE V between(const V& x, float least, float most) {
  return each([=](Floats v) { return max(splat(least), min(splat(most), v)); }, x);
}
template <class V>
ROOFLM_INLINE V absolute(const V& x) {
  return each([](Floats v) { return max(v, -v); }, x);
}
/// `kept` where |x| <= 7, else 0.
template <class V>
ROOFLM_INLINE V inside(const V& x, const V& kept, bool both) {
  return each(
      [=](Floats v, Floats k) {
        const Floats of = both ? max(v, -v) : v;
        return of <= kMost ? k : Floats{};
      },
      x, kept);
}

/// A gate s(x) and its slope.
template <class V>
struct Gate {
  V value, slope;
};

/// Phi(x) and phi(x). With a = |x|, Phi(-a) = exp(-a^2 / 2) t P(t), t = 1 / (1 + 0.35 a): P interpolates at
/// Chebyshev nodes, with a relative error of 4e-8 for a <= 13.5, beyond which the product is 0 in fp32.
template <Storage S, class V>
ROOFLM_INLINE Gate<V> normal_gate(const V& x) {
  const V bell = exp<S>(x * x * -0.5F);
  const V t = 1.0F / (1.0F + absolute(x) * 0.35F);
  V p = t * -0.0296097955F + 0.146224206F;
  p = p * t + -0.260337905F;
  p = p * t + 0.164391735F;
  p = p * t + -0.0266330979F;
  p = p * t + 0.10695824F;
  p = p * t + 0.119479433F;
  p = p * t + 0.139908265F;
  p = p * t + 0.139618902F;
  const V tail = p * t * bell;
  return {each([](Floats v, Floats below) { return v < 0.0F ? below : 1.0F - below; }, x, tail),
          bell * 0.398942280F};
}

/// f(x) and f'(x). Gates are 0 or 1 where x is clamped; powers of larger numbers may overflow.
template <Activation kKind, Storage S, class V>
ROOFLM_INLINE Gate<V> activation(const V& in) {
  if constexpr (kKind == Activation::relu) {
    return {each([](Floats v) { return max(Floats{}, v); }, in),
            each([](Floats v) { return v > 0.0F ? splat(1.0F) : Floats{}; }, in)};
  } else if constexpr (kKind == Activation::relu2) {
    const V positive = each([](Floats v) { return max(Floats{}, v); }, in);
    return {positive * positive, positive + positive};
  } else if constexpr (kKind == Activation::gelu) {
    const V x = between(in, -16, 16);
    const Gate<V> gate = normal_gate<S>(x);
    return {in * gate.value, gate.value + x * gate.slope};
  } else if constexpr (kKind == Activation::gelu_tanh) {
    constexpr float kLinear = 1.59576912F;  // 2 sqrt(2/pi)
    constexpr float kCubic = kLinear * 0.044715F;
    const V x = between(in, -16, 16);
    const V gate = sigmoid_of_negative<S>(x * (x * x * -kCubic - kLinear));
    return {in * gate, gate + x * gate * (1.0F - gate) * (x * x * (3 * kCubic) + kLinear)};
  } else if constexpr (kKind == Activation::silu) {
    const V gate = sigmoid_of_negative<S>(between(in, -80, 1e30F) * -1.0F);
    return {in * gate, gate * (1.0F + in * (1.0F - gate))};
  } else {
    constexpr auto kSlope = static_cast<float>(program::kClippedSlope);
    const V x = between(in, -60, kMost);
    const V gate = sigmoid_of_negative<S>(x * -kSlope);
    return {x * gate, inside<V>(in, gate * (1.0F + x * kSlope * (1.0F - gate)), false)};
  }
}

/// What the gate is multiplied with, and its slope.
template <Activation kKind, class V>
ROOFLM_INLINE V up_of(const V& up) {
  if constexpr (kKind == Activation::clipped_swiglu) return between(up, -kMost, kMost) + 1.0F;
  return up;
}
template <Activation kKind, class V>
ROOFLM_INLINE V up_gradient(const V& up, const V& d) {
  if constexpr (kKind == Activation::clipped_swiglu) return inside(up, d, true);
  return d;
}

struct Activate {
  std::int64_t rows, width;
  bool is_gated;
  [[nodiscard]] std::int64_t wide() const { return is_gated ? 2 * width : width; }
  [[nodiscard]] std::int64_t grain() const { return std::max<std::int64_t>(1, kGrain / width); }
};

template <class S>
bool streams_into(const S* to, const S* a, const S* b, std::int64_t rows, std::int64_t cols) {
  const std::int64_t bytes = cols * static_cast<std::int64_t>(sizeof(S));
  return to != a && to != b && bytes % kLineBytes == 0 && is_streamed(rows * bytes);
}

template <Activation kKind, Storage S>
[[gnu::noipa]] void activate_forward(const Activate& a, const S* h, S* y) {
  const bool streams = streams_into<S>(y, h, h, a.rows, a.width);
  parallel_for(a.rows, a.grain(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const S* gate = h + r * a.wide();
      const S* up = a.is_gated ? gate + a.width : nullptr;
      S* out = y + r * a.width;
      for_bundles_to(out, streams, 0, a.width, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
        const auto x = load_at(gate + i, group);
        auto value = activation<kKind, S>(x).value;
        if (up != nullptr) value = value * up_of<kKind>(load_at(up + i, group));
        store_at(out + i, value, group);
      });
    }
    if (streams) end_stream();
  });
}

template <Activation kKind, Storage S>
[[gnu::noipa]] void activate_backward(const Activate& a, const S* dy, const S* h, S* dh) {
  const bool streams = streams_into<S>(dh, dy, h, a.rows, a.width);
  parallel_for(a.rows, a.grain(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const S* gate = h + r * a.wide();
      const S* up = a.is_gated ? gate + a.width : nullptr;
      const S* d_out = dy + r * a.width;
      S* to = dh + r * a.wide();
      for_bundles_to(to, streams, 0, a.width, [=, &a](auto i, auto group) ROOFLM_INLINE_LAMBDA {
        const auto d = load_at(d_out + i, group);
        const auto f = activation<kKind, S>(load_at(gate + i, group));
        if (up == nullptr) return store_at(to + i, d * f.slope, group);
        const auto u = load_at(up + i, group);
        store_at(to + i, d * up_of<kKind>(u) * f.slope, group);
        store_at(to + a.width + i, up_gradient<kKind>(u, d * f.value), group);
      });
    }
    if (streams) end_stream();
  });
}

/// Near 0 the first terms of the series, whose rest is below 1e-8; elsewhere of exp.
template <Storage S, class V>
ROOFLM_INLINE V tanh_of(const V& z) {
  const V e = exp<S>(absolute(z) * -2.0F);
  const V far = (1.0F - e) / (1.0F + e);
  const V s = z * z;
  V near = s * -0.00886323553F + 0.0218694885F;
  near = near * s + -0.0539682540F;
  near = near * s + 0.133333333F;
  near = near * s + -0.333333333F;
  near = z + z * s * near;
  return each(
      [](Floats v, Floats a, Floats b) {
        const Floats signed_far = v < 0.0F ? -b : b;
        return max(v, -v) < 0.35F ? a : signed_far;
      },
      z, near, far);
}

/// y = cap tanh(factor x / cap), or factor x without a cap.
template <Storage S>
[[gnu::noipa]] void scale_cap(std::int64_t n, float factor, float cap, const S* x, S* y) {
  const bool streams = x != y && is_streamed(n * static_cast<std::int64_t>(sizeof(S)));
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_bundles_to(y, streams, begin, end, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
      const auto in = load_at(x + i, group);
      if (cap > 0) return store_at(y + i, tanh_of<S>(in * (factor / cap)) * cap, group);
      store_at(y + i, in * factor, group);
    });
    if (streams) end_stream();
  });
}

template <Storage S>
[[gnu::noipa]] void scale_cap_backward(std::int64_t n, float factor, float cap, const S* dy, const S* x,
                                       S* dx) {
  const bool streams = dx != x && dx != dy && is_streamed(n * static_cast<std::int64_t>(sizeof(S)));
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_bundles_to(dx, streams, begin, end, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
      const auto t = tanh_of<S>(load_at(x + i, group) * (factor / cap));
      store_at(dx + i, load_at(dy + i, group) * factor * (1.0F - t * t), group);
    });
    if (streams) end_stream();
  });
}

}  // namespace
}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

/// Calls make.template operator()<kind>(); an empty Kernel for xIELU.
template <class Make>
Kernel with_kind(const OpView& v, Make&& make) {
  return program::with_activation(static_cast<Activation>(v.integer("kind")),
                                  [&]<Activation kKind>() -> Kernel {
                                    if constexpr (kKind == Activation::xielu)
                                      return {};
                                    else
                                      return make.template operator()<kKind>();
                                  });
}

Activate shape_of(const OpView& v, const program::Tensor& y) {
  return {.rows = rows_of(y), .width = y.shape[-1], .is_gated = v.op.attrs.flag("gated")};
}

}  // namespace

Kernel make_activate(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    return with_kind(v, [&]<Activation kKind>() -> Kernel {
      return [shape = shape_of(v, v.out(0))](const KernelArgs& args) {
        activate_forward<kKind>(shape, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]));
      };
    });
  });
}

Kernel make_activate_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    return with_kind(v, [&]<Activation kKind>() -> Kernel {
      return [shape = shape_of(v, v.in(0))](const KernelArgs& args) {
        activate_backward<kKind>(shape, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                                 static_cast<S*>(args.out[0]));
      };
    });
  });
}

Kernel make_scale_cap(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    return [n = v.in(0).shape.numel(), factor = v.number("factor"),
            cap = v.number("cap")](const KernelArgs& args) {
      scale_cap(n, factor, cap, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_scale_cap_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    return [n = v.in(0).shape.numel(), factor = v.number("factor"),
            cap = v.number("cap")](const KernelArgs& args) {
      scale_cap_backward(n, factor, cap, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                         static_cast<S*>(args.out[0]));
    };
  });
}

MakerRows activate_rows() {
  namespace ops = program::ops;
  return {{&ops::kActivate, make_activate, "activate_forward"},
          {&ops::kActivateBackward, make_activate_backward, "activate_backward"},
          {&ops::kScaleCap, make_scale_cap, "scale_cap"},
          {&ops::kScaleCapBackward, make_scale_cap_backward, "scale_cap_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
