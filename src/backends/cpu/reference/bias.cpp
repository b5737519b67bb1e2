// bias_add: y[r, n] = x[r, n] + bias[n]; bias_backward: db[n] (+)= sum over rows of dy[r, n].
#include <array>

#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_bias_add(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / n;
    return [n, rows, x = in_operand<C>(v, 0, n), bias = in_operand<C>(v, 1, n),
            y = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* xs = x.read(args.in[0], r * n, n);
        const C* bs = bias.read(args.in[1], 0, n);
        y.write(args.out[0], r * n, n, [&](C* to) {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) to[i] = xs[i] + bs[i];
        });
      });
    };
  });
}

Kernel make_bias_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / n;
    return [n, rows, accumulate = v.accumulates(), dy = in_operand<C>(v, 0, kColumns),
            db = out_operand<C>(v, 0, kColumns)](const KernelArgs& args) {
      for_columns(n, [&](std::int64_t first, std::int64_t count) {
        std::array<double, kColumns> total{};
        if (accumulate) convert(db.read(args.out[0], first, count), total.data(), count);
        for (std::int64_t r = 0; r < rows; ++r) {
          const C* row = dy.read(args.in[0], r * n + first, count);
          for (std::int64_t i = 0; i < count; ++i) total[static_cast<std::size_t>(i)] += row[i];
        }
        db.write(args.out[0], first, count, [&](C* to) { convert(total.data(), to, count); });
      });
    };
  });
}

MakerRows bias_rows() {
  namespace ops = program::ops;
  return {{&ops::kBiasAdd, make_bias_add, "reference::bias_add"},
          {&ops::kBiasBackward, make_bias_backward, "reference::bias_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
