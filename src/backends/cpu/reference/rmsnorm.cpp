// rmsnorm: y = x * rstd * w over the last dimension C; with the residual addition; gradients.
#include <array>
#include <cmath>

#include "backends/cpu/reference/norm_weight.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/producers.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// The norm of rows that are already in the compute type.
template <class C>
struct RmsNorm {
  std::int64_t cols;
  double eps;
  NormWeight<C> weight;
  Operand<C> y, rstd;

  /// Normalises the row x; out: y, rstd.
  void operator()(const C* x, std::int64_t r, const void* w, std::span<void* const> out) const {
    const double s = 1 / std::sqrt(dot(x, x, cols) / static_cast<double>(cols) + eps);
    const C* ws = weight.read(w, cols);
    y.write(out[0], r * cols, cols, [&](C* to) {
#pragma omp simd
      for (std::int64_t i = 0; i < cols; ++i) to[i] = x[i] * static_cast<C>(s) * ws[i];
    });
    rstd.write(out[1], r, 1, [&](C* to) { *to = static_cast<C>(s); });
  }
};

/// `weight`: index of the weight among the inputs; `y`: index of y among the outputs.
template <class C>
RmsNorm<C> rmsnorm_of(const OpView& v, std::size_t weight, std::size_t y) {
  const std::int64_t cols = v.in(0).shape[-1];
  return {cols, v.op.attrs.number("eps"), NormWeight<C>(v, weight, cols, C(1)), out_operand<C>(v, y, cols),
          out_operand<C>(v, y + 1, 1)};
}

/// Operands of the backward op.
template <class C>
struct Backward {
  std::int64_t rows, cols;
  bool accumulate, has_residual, rebuilds;
  NormWeight<C> weight;
  Operand<C> dy, x, rstd, residual, dx, dw, y;

  /// dw[c] (+)= sum_r dy[r, c] * x[r, c] * rstd[r]
  void weights(const KernelArgs& args, std::int64_t first, std::int64_t count) const {
    std::array<double, kColumns> dws{};
    if (accumulate) convert(dw.read(args.out[1], first, count), dws.data(), count);
    for (std::int64_t r = 0; r < rows; ++r) {
      const C s = *rstd.read(args.in[3], r, 1);
      const C* dys = dy.read(args.in[0], r * cols + first, count);
      const C* xs = x.read(args.in[1], r * cols + first, count);
      for (std::int64_t i = 0; i < count; ++i) dws[static_cast<std::size_t>(i)] += dys[i] * xs[i] * s;
    }
    dw.write(args.out[1], first, count, [&](C* to) { convert(dws.data(), to, count); });
  }

  /// dx = rstd * (g - xhat * mean_C(g * xhat)) (+ residual), g = dy * w, xhat = x * rstd
  void row(const KernelArgs& args, std::int64_t r) const {
    const C* dys = dy.read(args.in[0], r * cols, cols);
    const C* xs = x.read(args.in[1], r * cols, cols);
    const C* ws = weight.read(args.in[2], cols);
    const C* rest = has_residual ? residual.read(args.in[4], r * cols, cols) : nullptr;
    const C s = *rstd.read(args.in[3], r, 1);
    double sum_g_xhat = 0;
#pragma omp simd reduction(+ : sum_g_xhat)
    for (std::int64_t i = 0; i < cols; ++i) {
      sum_g_xhat += static_cast<double>(dys[i] * ws[i]) * static_cast<double>(xs[i] * s);
    }
    const C mean_g_xhat = static_cast<C>(sum_g_xhat / static_cast<double>(cols));
    dx.write(args.out[0], r * cols, cols, [&](C* to) {
      for (std::int64_t i = 0; i < cols; ++i) {
        const C d = s * (dys[i] * ws[i] - xs[i] * s * mean_g_xhat);
        to[i] = rest != nullptr ? d + rest[i] : d;
      }
    });
    if (!rebuilds) return;
    y.write(args.out[2], r * cols, cols, [&](C* to) {
#pragma omp simd
      for (std::int64_t i = 0; i < cols; ++i) to[i] = xs[i] * s * ws[i];
    });
  }
};

}  // namespace

Kernel make_rmsnorm(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const auto norm = rmsnorm_of<C>(v, 1, 0);
    const std::int64_t rows = v.in(0).shape.numel() / norm.cols;
    return [rows, norm, x = in_operand<C>(v, 0, norm.cols)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        norm(x.read(args.in[0], r * norm.cols, norm.cols), r, args.in[1], args.out);
      });
    };
  });
}

Kernel make_rmsnorm_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t cols = v.in(1).shape[-1];
    const bool has_residual = v.has_in(4);
    const bool rebuilds = v.op.attrs.flag("rebuilds");
    const Backward<C> backward{v.in(1).shape.numel() / cols,
                               cols,
                               v.accumulates(),
                               has_residual,
                               rebuilds,
                               NormWeight<C>(v, 2, cols, C(1)),
                               in_operand<C>(v, 0, cols),
                               in_operand<C>(v, 1, cols),
                               in_operand<C>(v, 3, 1),
                               has_residual ? in_operand<C>(v, 4, cols) : Operand<C>(),
                               out_operand<C>(v, 0, cols),
                               gradient_operand<C>(v, 1),
                               rebuilds ? out_operand<C>(v, 2, cols) : Operand<C>()};
    // Weight gradients first: dx may overwrite dy.
    return [backward](const KernelArgs& args) {
      if (args.out[1] != nullptr) {
        for_columns(backward.cols,
                    [&](std::int64_t first, std::int64_t count) { backward.weights(args, first, count); });
      }
      for_rows(backward.rows, [&](std::int64_t r) { backward.row(args, r); });
    };
  });
}

MakerRows rmsnorm_rows() {
  namespace ops = program::ops;
  return {{&ops::kRmsNorm, make_rmsnorm, "reference::rmsnorm"},
          {&ops::kRmsNormBackward, make_rmsnorm_backward, "reference::rmsnorm_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
