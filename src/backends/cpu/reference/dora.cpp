// row_squares, inverse_norms, set_scales and scale_columns, with their gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/reference/operand.h"
#include "core/packed_weights.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_row_squares(const OpView& v) {
  const std::int64_t rows = v.in(0).shape[0], width = v.in(0).shape[1];
  const std::int64_t at = v.integer("at"), n = v.integer("n");
  const DType format = v.in(0).dtype;
  if (core::is_packed(format)) {
    return [=](const KernelArgs& args) {
      const core::PackedMatrix w{format, rows, width, static_cast<const std::byte*>(args.in[0])};
      for_rows(n, [&](std::int64_t i) {
        std::vector<float> row(static_cast<std::size_t>(width));
        w.unpack(at + i, 0, width, row.data());
        static_cast<float*>(args.out[0])[i] = static_cast<float>(dot(row.data(), row.data(), width));
      });
    };
  }
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    return [=, w = in_operand<C>(v, 0, width), to = out_operand<C>(v, 0, 1)](const KernelArgs& args) {
      for_rows(n, [&](std::int64_t i) {
        const C* row = w.read(args.in[0], (at + i) * width, width);
        to.write(args.out[0], i, 1, [&](C* square) { *square = static_cast<C>(dot(row, row, width)); });
      });
    };
  });
}

Kernel make_inverse_norms(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(3).shape[0], rank = v.in(3).shape[1], stride = v.in(1).shape[1];
    const std::int64_t at = v.integer("at");
    const double factor = v.op.attrs.number("factor");
    return [=, squares = in_operand<C>(v, 0, 1), products = in_operand<C>(v, 1, 1),
            grams = in_operand<C>(v, 2, rank), b = in_operand<C>(v, 3, rank),
            inverse = out_operand<C>(v, 0, 1)](const KernelArgs& args) {
      for_rows(n, [&](std::int64_t i) {
        const C* row = b.read(args.in[3], i * rank, rank);
        const auto before = static_cast<double>(*squares.read(args.in[0], i, 1));
        double linear = 0, quadratic = 0;
        for (std::int64_t j = 0; j < rank; ++j) {
          linear += static_cast<double>(row[j]) * *products.read(args.in[1], j * stride + at + i, 1);
          quadratic += row[j] * dot(grams.read(args.in[2], j * rank, rank), row, rank);
        }
        const double square = before + factor * (2 * linear + factor * quadratic);
        constexpr double kLeast = std::numeric_limits<float>::min();
        const double norm = std::sqrt(std::max({square, 1e-6 * before, kLeast}));
        inverse.write(args.out[0], i, 1, [&](C* to) { *to = static_cast<C>(1 / norm); });
      });
    };
  });
}

Kernel make_set_scales(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(1).shape[0], width = v.out(0).shape[0], at = v.integer("at");
    const bool has_earlier = v.has_in(0);
    const Operand<C> earlier = has_earlier ? in_operand<C>(v, 0, width) : Operand<C>();
    return [=, m = in_operand<C>(v, 1, n), r = in_operand<C>(v, 2, n),
            z = out_operand<C>(v, 0, width)](const KernelArgs& args) {
      const C* ms = m.read(args.in[1], 0, n);
      const C* rs = r.read(args.in[2], 0, n);
      z.write(args.out[0], 0, width, [&](C* to) {
        if (has_earlier) {
          std::copy_n(earlier.read(args.in[0], 0, width), width, to);
        } else {
          std::fill_n(to, width, C{1});
        }
        for (std::int64_t i = 0; i < n; ++i) to[at + i] = ms[i] * rs[i];
      });
    };
  });
}

Kernel make_set_scales_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(1).shape[0], at = v.integer("at");
    return [=, accumulate = v.accumulates(), dz = in_operand<C>(v, 0, n), r = in_operand<C>(v, 1, n),
            dm = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      const C* dzs = dz.read(args.in[0], at, n);
      const C* rs = r.read(args.in[1], 0, n);
      const C* before = accumulate ? dm.read(args.out[0], 0, n) : nullptr;
      dm.write(args.out[0], 0, n, [&](C* to) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = (accumulate ? before[i] : C{0}) + dzs[i] * rs[i];
      });
    };
  });
}

Kernel make_scale_columns(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    return [=, rows = v.in(0).shape.numel() / n, x = in_operand<C>(v, 0, n), z = in_operand<C>(v, 1, n),
            y = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* xs = x.read(args.in[0], r * n, n);
        const C* zs = z.read(args.in[1], 0, n);
        y.write(args.out[0], r * n, n, [&](C* to) {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) to[i] = xs[i] * zs[i];
        });
      });
    };
  });
}

Kernel make_scale_columns_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(1).shape[-1];
    return [=, rows = v.in(1).shape.numel() / n, dy = in_operand<C>(v, 0, kColumns),
            x = in_operand<C>(v, 1, kColumns), z = in_operand<C>(v, 2, kColumns),
            dx = out_operand<C>(v, 0, kColumns),
            dz = out_operand<C>(v, 1, kColumns)](const KernelArgs& args) {
      for_columns(n, [&](std::int64_t first, std::int64_t count) {
        std::array<double, kColumns> total{};
        const C* zs = z.read(args.in[2], first, count);
        for (std::int64_t r = 0; r < rows; ++r) {
          const C* dys = dy.read(args.in[0], r * n + first, count);
          const C* xs = x.read(args.in[1], r * n + first, count);
          for (std::int64_t i = 0; i < count; ++i)
            total[static_cast<std::size_t>(i)] += static_cast<double>(dys[i]) * static_cast<double>(xs[i]);
          dx.write(args.out[0], r * n + first, count, [&](C* to) {
            for (std::int64_t i = 0; i < count; ++i) to[i] = dys[i] * zs[i];
          });
        }
        dz.write(args.out[1], first, count, [&](C* to) { convert(total.data(), to, count); });
      });
    };
  });
}

MakerRows dora_rows() {
  namespace ops = program::ops;
  return {{&ops::kRowSquares, make_row_squares, "reference::row_squares"},
          {&ops::kInverseNorms, make_inverse_norms, "reference::inverse_norms"},
          {&ops::kSetScales, make_set_scales, "reference::set_scales"},
          {&ops::kSetScalesBackward, make_set_scales_backward, "reference::set_scales_backward"},
          {&ops::kScaleColumns, make_scale_columns, "reference::scale_columns"},
          {&ops::kScaleColumnsBackward, make_scale_columns_backward, "reference::scale_columns_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
