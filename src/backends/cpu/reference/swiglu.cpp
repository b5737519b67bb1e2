// swiglu: y[r, f] = silu(h[r, f]) * h[r, F + f], silu(g) = g / (1 + exp(-g)), and its gradient.
#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/producers.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_swiglu(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t f = v.in(0).shape[-1] / 2;
    const std::int64_t rows = v.in(0).shape.numel() / (2 * f);
    return [f, rows, h = in_operand<C>(v, 0, 2 * f), y = out_operand<C>(v, 0, f)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* row = h.read(args.in[0], r * 2 * f, 2 * f);
        const auto gate = array(row, f);
        const auto up = array(row + f, f);
        y.write(args.out[0], r * f, f, [&](C* to) { array(to, f) = gate / (C(1) + (-gate).exp()) * up; });
      });
    };
  });
}

/// With s = sigmoid(gate): d gate = dy * up * s * (1 + gate * (1 - s)), d up = dy * gate * s. dh may
/// overwrite h: both halves of a pair are read before either is written.
Kernel make_swiglu_backward(const OpView& v) {
  if (v.op.attrs.flag("rebuilds")) return {};  // the plain ops run instead
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t f = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / f;
    return [f, rows, dy = in_operand<C>(v, 0, f), h = in_operand<C>(v, 1, 2 * f),
            dh = out_operand<C>(v, 0, 2 * f)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* dys = dy.read(args.in[0], r * f, f);
        const C* row = h.read(args.in[1], r * 2 * f, 2 * f);
        dh.write(args.out[0], r * 2 * f, 2 * f, [&](C* to) {
          constexpr std::int64_t kPart = 256;
          for (std::int64_t i = 0; i < f; i += kPart) {
            const std::int64_t count = std::min(kPart, f - i);
            using Part = Eigen::Array<C, Eigen::Dynamic, 1, 0, kPart, 1>;
            const auto d = array(dys + i, count);
            const Part gate = array(row + i, count);
            const Part up = array(row + f + i, count);
            const Part s = C(1) / (C(1) + (-gate).exp());
            array(to + i, count) = d * up * s * (C(1) + gate * (C(1) - s));
            array(to + f + i, count) = d * gate * s;
          }
        });
      });
    };
  });
}

MakerRows swiglu_rows() {
  namespace ops = program::ops;
  return {{&ops::kSwiGlu, make_swiglu, "reference::swiglu"},
          {&ops::kSwiGluBackward, make_swiglu_backward, "reference::swiglu_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
