// gelu: y = 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), and its gradient.
#include <array>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

constexpr double kSlope = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;
constexpr double kFlat = 16;  // beyond it tanh(u) is -1 or 1 in every dtype

/// t = tanh(u(x))
template <class C>
void tanh_of(const C* x, C* t, std::int64_t count) {
  const auto xs = array(x, count);
  array(t, count) = (C(kSlope) * xs * (C(1) + C(kCubic) * xs.square())).tanh();
}

}  // namespace

Kernel make_gelu(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n, x = in_operand<C>(v, 0, kPiece), y = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      for_pieces(n, [&](std::int64_t i, std::int64_t count) {
        const C* from = x.read(args.in[0], i, count);
        alignas(64) std::array<C, kPiece> t;
        tanh_of(from, t.data(), count);
        y.write(args.out[0], i, count, [&](C* to) {
          array(to, count) = C(0.5) * array(from, count) * (C(1) + array(t.data(), count));
        });
      });
    };
  });
}

/// dx = dy (0.5 (1 + t) + 0.5 x (1 - t^2) u'(x)), t = tanh(u), u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2). The
/// second term is 0 beyond kFlat; x is clamped there, because x^2 may overflow and 0 * inf is NaN.
Kernel make_gelu_backward(const OpView& v) {
  if (v.op.attrs.flag("rebuilds") || v.op.attrs.flag("bias_gradient"))
    return {};  // the plain ops run instead
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n, dy = in_operand<C>(v, 0, kPiece), x = in_operand<C>(v, 1, kPiece),
            dx = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      for_pieces(n, [&](std::int64_t i, std::int64_t count) {
        const auto dys = array(dy.read(args.in[0], i, count), count);
        const C* from = x.read(args.in[1], i, count);
        const auto xs = array(from, count);
        alignas(64) std::array<C, kPiece> t;
        tanh_of(from, t.data(), count);
        const auto ts = array(t.data(), count);
        const auto flat = xs.max(C(-kFlat)).min(C(kFlat));
        dx.write(args.out[0], i, count, [&](C* to) {
          array(to, count) =
              C(0.5) * dys *
              (C(1) + ts +
               flat * (C(1) - ts.square()) * (C(kSlope) + C(3 * kSlope * kCubic) * flat.square()));
        });
      });
    };
  });
}

MakerRows gelu_rows() {
  namespace ops = program::ops;
  return {{&ops::kGelu, make_gelu, "reference::gelu"},
          {&ops::kGeluBackward, make_gelu_backward, "reference::gelu_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
