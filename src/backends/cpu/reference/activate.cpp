// activate: y = f(h) or f(gate) * up, f of the kinds of program/activation.h, and its gradient.
#include <cmath>
#include <vector>

#include "backends/cpu/reference/operand.h"
#include "program/activation.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using program::Activation;

/// Beyond it gates are 0 or 1 in every dtype; powers of larger numbers may overflow, and 0 * inf is NaN.
constexpr double kFlat = 40;

/// p and n of xIELU, of its weights.
template <class C>
struct Xielu {
  C positive = 0, negative = 0;
  Xielu() = default;
  explicit Xielu(const C* w)
      : positive(softplus(w[0])), negative(static_cast<C>(program::kXieluLinear) + softplus(w[1])) {}
  static C softplus(C x) { return std::max(x, C(0)) + std::log1p(std::exp(-std::abs(x))); }
  /// Of n.
  static C factor(C x) { return std::expm1(std::min(x, static_cast<C>(program::kXieluBelow))) - x; }
};

/// f(x) and f'(x).
template <class C>
struct Point {
  C value, slope;
};

/// x s(a x) with the gate s, and ds = a s'.
template <class C>
Point<C> gated_by(C x, C s, C ds) {
  return {x * s, s + std::clamp(x, C(-kFlat), C(kFlat)) * ds};
}

template <class C>
Point<C> point_of(Activation kind, C x, const Xielu<C>& xielu) {
  const C flat = std::clamp(x, C(-kFlat), C(kFlat));
  switch (kind) {
    case Activation::gelu_tanh: {
      const C root = C(0.7978845608028654);  // sqrt(2 / pi)
      const C t = std::tanh(root * (flat + C(0.044715) * flat * flat * flat));
      return gated_by(x, C(0.5) * (1 + t), C(0.5) * (1 - t * t) * root * (1 + C(3 * 0.044715) * flat * flat));
    }
    case Activation::gelu: {
      const C gate = C(0.5) * std::erfc(-flat * C(0.7071067811865476));
      return gated_by(x, gate, C(0.3989422804014327) * std::exp(-flat * flat / 2));
    }
    case Activation::silu: {
      const C s = 1 / (1 + std::exp(-x));
      return gated_by(x, s, s * (1 - s));
    }
    case Activation::clipped_swiglu: {
      const C slope = static_cast<C>(program::kClippedSlope);
      const C most = static_cast<C>(program::kClipped);
      const C g = std::min(x, most);
      const C s = 1 / (1 + std::exp(-slope * g));
      const Point<C> inside = gated_by(g, s, slope * s * (1 - s));
      return {inside.value, x <= most ? inside.slope : C(0)};
    }
    case Activation::relu:
      return {std::max(x, C(0)), x > 0 ? C(1) : C(0)};
    case Activation::relu2: {
      const C positive = std::max(x, C(0));
      return {positive * positive, 2 * positive};
    }
    case Activation::xielu: {
      const C linear = static_cast<C>(program::kXieluLinear);
      if (x > 0) return {(xielu.positive * x + linear) * x, 2 * xielu.positive * x + linear};
      const C rise = x < static_cast<C>(program::kXieluBelow) ? std::exp(x) : C(0);
      return {xielu.negative * Xielu<C>::factor(x) + linear * x, xielu.negative * (rise - 1) + linear};
    }
  }
  return {};
}

/// What f(gate) is multiplied with, and its slope.
template <class C>
Point<C> up_of(Activation kind, C up) {
  if (kind != Activation::clipped_swiglu) return {up, C(1)};
  const C most = static_cast<C>(program::kClipped);
  return {std::clamp(up, -most, most) + 1, std::abs(up) <= most ? C(1) : C(0)};
}

struct ActivateShape {
  Activation kind;
  bool is_gated;
  std::int64_t width, rows;
  ActivateShape(const OpView& v, const program::Tensor& y)
      : kind(static_cast<Activation>(v.integer("kind"))),
        is_gated(v.op.attrs.flag("gated")),
        width(y.shape[-1]),
        rows(rows_of(y)) {}
  [[nodiscard]] std::int64_t wide() const { return is_gated ? 2 * width : width; }
};

}  // namespace

Kernel make_activate(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const ActivateShape s(v, v.out(0));
    const bool has_weight = v.has_in(1);
    return [=, h = in_operand<C>(v, 0, s.wide()), w = in_operand<C>(v, has_weight ? 1 : 0, 2),
            y = out_operand<C>(v, 0, s.width)](const KernelArgs& args) {
      const Xielu<C> xielu = has_weight ? Xielu<C>(w.read(args.in[1], 0, 2)) : Xielu<C>();
      for_rows(s.rows, [&](std::int64_t r) {
        const C* row = h.read(args.in[0], r * s.wide(), s.wide());
        y.write(args.out[0], r * s.width, s.width, [&](C* to) {
          for (std::int64_t i = 0; i < s.width; ++i) {
            const C value = point_of(s.kind, row[i], xielu).value;
            to[i] = s.is_gated ? value * up_of(s.kind, row[s.width + i]).value : value;
          }
        });
      });
    };
  });
}

namespace {

/// dw (+)= of sums over all elements: of dy x^2 where x > 0, of dy times n's factor elsewhere.
template <class C>
void xielu_gradient(const Operand<C>& dw, void* to, bool accumulate, const C* w,
                    const std::vector<double>& sums) {
  double total[2] = {0, 0};
  for (std::size_t i = 0; i < sums.size(); ++i) total[i % 2] += sums[i];
  const C before[2] = {accumulate ? dw.read(to, 0, 2)[0] : C(0), accumulate ? dw.read(to, 0, 2)[1] : C(0)};
  dw.write(to, 0, 2, [&](C* out) {
    for (std::size_t i = 0; i < 2; ++i) out[i] = before[i] + static_cast<C>(total[i]) / (1 + std::exp(-w[i]));
  });
}

}  // namespace

/// dh may overwrite h: both halves of a pair are read before either is written.
Kernel make_activate_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const ActivateShape s(v, v.in(0));
    const bool has_weight = v.has_in(2);
    const auto sums = std::make_shared<std::vector<double>>(static_cast<std::size_t>(2 * s.rows));
    return [=, accumulate = v.accumulates(), dy = in_operand<C>(v, 0, s.width),
            h = in_operand<C>(v, 1, s.wide()), w = in_operand<C>(v, has_weight ? 2 : 0, 2),
            dh = out_operand<C>(v, 0, s.wide()),
            dw = out_operand<C>(v, has_weight ? 1 : 0, 2)](const KernelArgs& args) {
      const Xielu<C> xielu = has_weight ? Xielu<C>(w.read(args.in[2], 0, 2)) : Xielu<C>();
      for_rows(s.rows, [&](std::int64_t r) {
        const C* d = dy.read(args.in[0], r * s.width, s.width);
        const C* row = h.read(args.in[1], r * s.wide(), s.wide());
        double* own = sums->data() + 2 * r;
        own[0] = own[1] = 0;
        for (std::int64_t i = 0; has_weight && i < s.width; ++i) {
          const C x = row[i];
          own[x > 0 ? 0 : 1] += static_cast<double>(d[i]) * (x > 0 ? x * x : Xielu<C>::factor(x));
        }
        dh.write(args.out[0], r * s.wide(), s.wide(), [&](C* to) {
          for (std::int64_t i = 0; i < s.width; ++i) {
            const Point<C> f = point_of(s.kind, row[i], xielu);
            if (!s.is_gated) {
              to[i] = d[i] * f.slope;
              continue;
            }
            const Point<C> up = up_of(s.kind, row[s.width + i]);
            to[i] = d[i] * up.value * f.slope;
            to[s.width + i] = d[i] * f.value * up.slope;
          }
        });
      });
      if (has_weight) xielu_gradient(dw, args.out[1], accumulate, w.read(args.in[2], 0, 2), *sums);
    };
  });
}

MakerRows activate_rows() {
  namespace ops = program::ops;
  return {{&ops::kActivate, make_activate, "reference::activate"},
          {&ops::kActivateBackward, make_activate_backward, "reference::activate_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
