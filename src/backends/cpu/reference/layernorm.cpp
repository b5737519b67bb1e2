// layernorm: y = (x - mean) * rstd * w + b over the last dimension C; with the residual addition; gradients.
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
struct LayerNorm {
  std::int64_t cols;
  double eps;
  NormWeight<C> weight, bias;
  Operand<C> y, mean, rstd;

  /// Normalises the row x; out: y, mean, rstd.
  void operator()(const C* x, std::int64_t r, const void* w, const void* b,
                  std::span<void* const> out) const {
    const auto n = static_cast<double>(cols);
    const double m = sum(x, cols) / n;
    double square = 0;
#pragma omp simd reduction(+ : square)
    for (std::int64_t i = 0; i < cols; ++i) {
      const double centred = static_cast<double>(x[i]) - m;
      square += centred * centred;
    }
    const double s = 1 / std::sqrt(square / n + eps);
    const C* ws = weight.read(w, cols);
    const C* bs = bias.read(b, cols);
    y.write(out[0], r * cols, cols, [&](C* to) {
#pragma omp simd
      for (std::int64_t i = 0; i < cols; ++i) {
        to[i] = (x[i] - static_cast<C>(m)) * static_cast<C>(s) * ws[i] + bs[i];
      }
    });
    mean.write(out[1], r, 1, [&](C* to) { *to = static_cast<C>(m); });
    rstd.write(out[2], r, 1, [&](C* to) { *to = static_cast<C>(s); });
  }
};

/// `weight`: index of the weight among the inputs; `y`: index of y among the outputs.
template <class C>
LayerNorm<C> layernorm_of(const OpView& v, std::size_t weight, std::size_t y) {
  const std::int64_t cols = v.in(0).shape[-1];
  return {cols,
          v.op.attrs.number("eps"),
          NormWeight<C>(v, weight, cols, C(1)),
          NormWeight<C>(v, weight + 1, cols, C(0)),
          out_operand<C>(v, y, cols),
          out_operand<C>(v, y + 1, 1),
          out_operand<C>(v, y + 2, 1)};
}

/// Operands of the backward op.
template <class C>
struct Backward {
  std::int64_t rows, cols;
  bool accumulate, has_residual, rebuilds;
  NormWeight<C> weight, bias;
  Operand<C> dy, x, mean, rstd, residual, dx, dw, db, y;

  /// dw[c] (+)= sum_r dy[r, c] * xhat[r, c], db[c] (+)= sum_r dy[r, c]
  void weights(const KernelArgs& args, std::int64_t first, std::int64_t count) const {
    std::array<double, kColumns> dws{};
    std::array<double, kColumns> dbs{};
    if (accumulate) {
      if (args.out[1] != nullptr) convert(dw.read(args.out[1], first, count), dws.data(), count);
      if (args.out[2] != nullptr) convert(db.read(args.out[2], first, count), dbs.data(), count);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const C m = *mean.read(args.in[3], r, 1);
      const C s = *rstd.read(args.in[4], r, 1);
      const C* dys = dy.read(args.in[0], r * cols + first, count);
      const C* xs = x.read(args.in[1], r * cols + first, count);
      for (std::int64_t i = 0; i < count; ++i) {
        dws[static_cast<std::size_t>(i)] += dys[i] * (xs[i] - m) * s;
        dbs[static_cast<std::size_t>(i)] += dys[i];
      }
    }
    if (args.out[1] != nullptr)
      dw.write(args.out[1], first, count, [&](C* to) { convert(dws.data(), to, count); });
    if (args.out[2] == nullptr) return;
    db.write(args.out[2], first, count, [&](C* to) { convert(dbs.data(), to, count); });
  }

  /// dx = rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)) (+ residual), g = dy * w
  void row(const KernelArgs& args, std::int64_t r) const {
    const C* dys = dy.read(args.in[0], r * cols, cols);
    const C* xs = x.read(args.in[1], r * cols, cols);
    const C* ws = weight.read(args.in[2], cols);
    const C* rest = has_residual ? residual.read(args.in[5], r * cols, cols) : nullptr;
    const C m = *mean.read(args.in[3], r, 1);
    const C s = *rstd.read(args.in[4], r, 1);
    double sum_g = 0;
    double sum_g_xhat = 0;
#pragma omp simd reduction(+ : sum_g, sum_g_xhat)
    for (std::int64_t i = 0; i < cols; ++i) {
      const C g = dys[i] * ws[i];
      sum_g += static_cast<double>(g);
      sum_g_xhat += static_cast<double>(g) * static_cast<double>((xs[i] - m) * s);
    }
    const C mean_g = static_cast<C>(sum_g / static_cast<double>(cols));
    const C mean_g_xhat = static_cast<C>(sum_g_xhat / static_cast<double>(cols));
    dx.write(args.out[0], r * cols, cols, [&](C* to) {
      for (std::int64_t i = 0; i < cols; ++i) {
        const C d = s * (dys[i] * ws[i] - mean_g - (xs[i] - m) * s * mean_g_xhat);
        to[i] = rest != nullptr ? d + rest[i] : d;
      }
    });
    if (rebuilds) rebuild(args, r, xs, ws);
  }

  /// y of a row, as the forward op makes it.
  void rebuild(const KernelArgs& args, std::int64_t r, const C* xs, const C* ws) const {
    const C m = *mean.read(args.in[3], r, 1);
    const C s = *rstd.read(args.in[4], r, 1);
    const C* bs = bias.read(args.in[6], cols);
    y.write(args.out[3], r * cols, cols, [&](C* to) {
#pragma omp simd
      for (std::int64_t i = 0; i < cols; ++i) to[i] = (xs[i] - m) * s * ws[i] + bs[i];
    });
  }
};

}  // namespace

Kernel make_layernorm(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const auto norm = layernorm_of<C>(v, 1, 0);
    const std::int64_t rows = v.in(0).shape.numel() / norm.cols;
    return [rows, norm, x = in_operand<C>(v, 0, norm.cols)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        norm(x.read(args.in[0], r * norm.cols, norm.cols), r, args.in[1], args.in[2], args.out);
      });
    };
  });
}

Kernel make_layernorm_backward(const OpView& v) {
  if (v.op.attrs.flag("bias_gradient")) return {};  // the plain ops run instead
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t cols = v.in(1).shape[-1];
    const bool has_residual = v.has_in(5);
    const bool rebuilds = v.op.attrs.flag("rebuilds");
    const Backward<C> backward{v.in(1).shape.numel() / cols,
                               cols,
                               v.accumulates(),
                               has_residual,
                               rebuilds,
                               NormWeight<C>(v, 2, cols, C(1)),
                               NormWeight<C>(v, 6, cols, C(0)),
                               in_operand<C>(v, 0, cols),
                               in_operand<C>(v, 1, cols),
                               in_operand<C>(v, 3, 1),
                               in_operand<C>(v, 4, 1),
                               has_residual ? in_operand<C>(v, 5, cols) : Operand<C>(),
                               out_operand<C>(v, 0, cols),
                               gradient_operand<C>(v, 1),
                               gradient_operand<C>(v, 2),
                               rebuilds ? out_operand<C>(v, 3, cols) : Operand<C>()};
    // Weight gradients first: dx may overwrite dy.
    return [backward](const KernelArgs& args) {
      if (args.out[1] != nullptr || args.out[2] != nullptr) {
        for_columns(backward.cols,
                    [&](std::int64_t first, std::int64_t count) { backward.weights(args, first, count); });
      }
      for_rows(backward.rows, [&](std::int64_t r) { backward.row(args, r); });
    };
  });
}

MakerRows layernorm_rows() {
  namespace ops = program::ops;
  return {{&ops::kLayerNorm, make_layernorm, "reference::layernorm"},
          {&ops::kLayerNormBackward, make_layernorm_backward, "reference::layernorm_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
