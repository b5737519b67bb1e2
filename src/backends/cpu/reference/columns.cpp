// add_columns and take_columns.
#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_add_columns(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t width = v.in(0).shape[-1];
    const std::int64_t at = v.op.attrs.integer("at");
    const std::int64_t n = v.op.attrs.integer("n");
    const C factor = static_cast<C>(v.op.attrs.number("factor"));
    return [=, rows = v.in(0).shape.numel() / width, x = in_operand<C>(v, 0, width),
            y = in_operand<C>(v, 1, n), z = out_operand<C>(v, 0, width)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* xs = x.read(args.in[0], r * width, width);
        const C* ys = y.read(args.in[1], r * n, n);
        z.write(args.out[0], r * width, width, [&](C* to) {
          if (to != xs) std::copy_n(xs, width, to);
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) to[at + i] += factor * ys[i];
        });
      });
    };
  });
}

Kernel make_take_columns(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t width = v.in(0).shape[-1];
    const std::int64_t at = v.op.attrs.integer("at");
    const std::int64_t n = v.op.attrs.integer("n");
    const C factor = static_cast<C>(v.op.attrs.number("factor"));
    return [=, rows = v.in(0).shape.numel() / width, x = in_operand<C>(v, 0, n),
            y = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* xs = x.read(args.in[0], r * width + at, n);
        y.write(args.out[0], r * n, n, [&](C* to) {
          for (std::int64_t i = 0; i < n; ++i) to[i] = factor * xs[i];
        });
      });
    };
  });
}

MakerRows columns_rows() {
  namespace ops = program::ops;
  return {{&ops::kAddColumns, make_add_columns, "reference::add_columns"},
          {&ops::kTakeColumns, make_take_columns, "reference::take_columns"}};
}

}  // namespace rooflm::backends::cpu::reference
