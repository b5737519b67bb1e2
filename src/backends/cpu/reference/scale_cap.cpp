// scale_cap: y = factor x or cap tanh(factor x / cap); gate_rows: y[r] = sigmoid(gate[r]) x[r]; gradients.
#include <cmath>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_scale_cap(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const auto factor = static_cast<C>(v.op.attrs.number("factor"));
    const auto cap = static_cast<C>(v.op.attrs.number("cap"));
    return [=, n = v.in(0).shape.numel(), x = in_operand<C>(v, 0, kPiece),
            y = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      for_pieces(n, [&](std::int64_t i, std::int64_t count) {
        const C* xs = x.read(args.in[0], i, count);
        y.write(args.out[0], i, count, [&](C* to) {
          for (std::int64_t k = 0; k < count; ++k)
            to[k] = cap > 0 ? cap * std::tanh(factor * xs[k] / cap) : factor * xs[k];
        });
      });
    };
  });
}

Kernel make_scale_cap_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const auto factor = static_cast<C>(v.op.attrs.number("factor"));
    const auto cap = static_cast<C>(v.op.attrs.number("cap"));
    return [=, n = v.in(0).shape.numel(), dy = in_operand<C>(v, 0, kPiece), x = in_operand<C>(v, 1, kPiece),
            dx = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      for_pieces(n, [&](std::int64_t i, std::int64_t count) {
        const C* d = dy.read(args.in[0], i, count);
        const C* xs = x.read(args.in[1], i, count);
        dx.write(args.out[0], i, count, [&](C* to) {
          for (std::int64_t k = 0; k < count; ++k) {
            const C t = std::tanh(factor * xs[k] / cap);
            to[k] = factor * d[k] * (1 - t * t);
          }
        });
      });
    };
  });
}

Kernel make_gate_rows(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    return [=, rows = rows_of(v.in(0)), x = in_operand<C>(v, 0, n), gate = in_operand<C>(v, 1, 1),
            y = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C s = 1 / (1 + std::exp(-*gate.read(args.in[1], r, 1)));
        const C* xs = x.read(args.in[0], r * n, n);
        y.write(args.out[0], r * n, n, [&](C* to) { array(to, n) = s * array(xs, n); });
      });
    };
  });
}

Kernel make_gate_rows_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(1).shape[-1];
    return [=, rows = rows_of(v.in(1)), dy = in_operand<C>(v, 0, n), x = in_operand<C>(v, 1, n),
            gate = in_operand<C>(v, 2, 1), dx = out_operand<C>(v, 0, n),
            dgate = out_operand<C>(v, 1, 1)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C s = 1 / (1 + std::exp(-*gate.read(args.in[2], r, 1)));
        const C* d = dy.read(args.in[0], r * n, n);
        const C sum = static_cast<C>(dot(d, x.read(args.in[1], r * n, n), n));
        dgate.write(args.out[1], r, 1, [&](C* to) { *to = s * (1 - s) * sum; });
        dx.write(args.out[0], r * n, n, [&](C* to) { array(to, n) = s * array(d, n); });
      });
    };
  });
}

MakerRows scale_cap_rows() {
  namespace ops = program::ops;
  return {{&ops::kScaleCap, make_scale_cap, "reference::scale_cap"},
          {&ops::kScaleCapBackward, make_scale_cap_backward, "reference::scale_cap_backward"},
          {&ops::kGateRows, make_gate_rows, "reference::gate_rows"},
          {&ops::kGateRowsBackward, make_gate_rows_backward, "reference::gate_rows_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
