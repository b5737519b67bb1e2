// bias_add: y[r, n] = x[r, n] + bias[n]; bias_backward: db[n] (+)= sum over rows of dy[r, n]. The same with
// the bias of a row's expert.
#include <algorithm>
#include <array>
#include <vector>

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

Kernel make_grouped_bias_add(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    const std::int64_t experts = v.in(1).shape[0];
    return [=, x = in_operand<C>(v, 0, n), bias = in_operand<C>(v, 1, n),
            y = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      const auto* offsets = static_cast<const std::int32_t*>(args.in[2]);
      for_rows(offsets[experts], [&](std::int64_t r) {
        const std::int64_t e = std::upper_bound(offsets + 1, offsets + experts + 1, r) - (offsets + 1);
        const C* xs = x.read(args.in[0], r * n, n);
        const C* bs = bias.read(args.in[1], e * n, n);
        y.write(args.out[0], r * n, n, [&](C* to) {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) to[i] = xs[i] + bs[i];
        });
      });
    };
  });
}

Kernel make_grouped_bias_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    const std::int64_t experts = v.in(1).shape.numel() - 1;
    return [=, accumulate = v.accumulates(), dy = in_operand<C>(v, 0, n),
            db = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      const auto* offsets = static_cast<const std::int32_t*>(args.in[1]);
      for_rows(experts, [&](std::int64_t e) {
        std::vector<double> total(static_cast<std::size_t>(n), 0.0);
        if (accumulate) convert(db.read(args.out[0], e * n, n), total.data(), n);
        for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
          const C* row = dy.read(args.in[0], r * n, n);
          for (std::int64_t i = 0; i < n; ++i) total[static_cast<std::size_t>(i)] += row[i];
        }
        db.write(args.out[0], e * n, n, [&](C* to) { convert(total.data(), to, n); });
      });
    };
  });
}

MakerRows bias_rows() {
  namespace ops = program::ops;
  return {{&ops::kBiasAdd, make_bias_add, "reference::bias_add"},
          {&ops::kBiasBackward, make_bias_backward, "reference::bias_backward"},
          {&ops::kGroupedBiasAdd, make_grouped_bias_add, "reference::grouped_bias_add"},
          {&ops::kGroupedBiasBackward, make_grouped_bias_backward, "reference::grouped_bias_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
