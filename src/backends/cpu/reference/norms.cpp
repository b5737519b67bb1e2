// layernorm: y = (x - mean) * rstd * w + b over the last dimension C; rmsnorm: y = x * rstd * w, without mean
// and bias; their gradients. The residual addition is an op before them.
#include <array>
#include <cmath>

#include "backends/cpu/reference/norm_weight.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/producers.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// x - mean of layernorm, x of rmsnorm.
template <bool kHasMean, class T>
T centred(T x, T mean) {
  return kHasMean ? x - mean : x;
}

/// xhat * w + b, xhat = centred * rstd
template <bool kHasMean, class C>
void write_row(const C* x, C mean, C rstd, const C* w, const C* b, std::int64_t cols, C* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < cols; ++i) {
    const C scaled = centred<kHasMean>(x[i], mean) * rstd * w[i];
    to[i] = kHasMean ? scaled + b[i] : scaled;
  }
}

/// Inputs: x, w[, b]. Outputs: y[, mean], rstd.
template <bool kHasMean, class C>
struct Forward {
  std::int64_t cols;
  double eps;
  NormWeight<C> weight, bias;
  Operand<C> x, y, mean, rstd;

  void row(const KernelArgs& args, std::int64_t r) const {
    const C* xs = x.read(args.in[0], r * cols, cols);
    const auto n = static_cast<double>(cols);
    double m = 0;
    if constexpr (kHasMean) m = sum(xs, cols) / n;
    double square = 0;
#pragma omp simd reduction(+ : square)
    for (std::int64_t i = 0; i < cols; ++i) {
      const double d = centred<kHasMean>(static_cast<double>(xs[i]), m);
      square += d * d;
    }
    const double s = 1 / std::sqrt(square / n + eps);
    const C* ws = weight.read(args.in[1], cols);
    const C* bs = kHasMean ? bias.read(args.in[2], cols) : nullptr;
    y.write(args.out[0], r * cols, cols,
            [&](C* to) { write_row<kHasMean>(xs, static_cast<C>(m), static_cast<C>(s), ws, bs, cols, to); });
    if constexpr (kHasMean) mean.write(args.out[1], r, 1, [&](C* to) { *to = static_cast<C>(m); });
    rstd.write(args.out[kHasMean ? 2 : 1], r, 1, [&](C* to) { *to = static_cast<C>(s); });
  }
};

/// Inputs: dy, x, w[, mean], rstd, residual gradient[, b]. Outputs: dx, dw[, db], y where it is made again.
template <bool kHasMean, class C>
struct Backward {
  static constexpr std::size_t kRstd = kHasMean ? 4 : 3, kResidual = kRstd + 1, kBias = 6,
                               kRebuilt = kHasMean ? 3 : 2;
  std::int64_t rows, cols;
  bool accumulate, has_residual, rebuilds;
  NormWeight<C> weight, bias;
  Operand<C> dy, x, mean, rstd, residual, dx, dw, db, y;

  C mean_of(const KernelArgs& args, std::int64_t r) const {
    return kHasMean ? *mean.read(args.in[3], r, 1) : C(0);
  }

  /// dw[c] (+)= sum_r dy[r, c] * xhat[r, c], db[c] (+)= sum_r dy[r, c]
  void weights(const KernelArgs& args, std::int64_t first, std::int64_t count) const {
    std::array<double, kColumns> dws{};
    std::array<double, kColumns> dbs{};
    void* const db_out = kHasMean ? args.out[2] : nullptr;
    if (accumulate) {
      if (args.out[1] != nullptr) convert(dw.read(args.out[1], first, count), dws.data(), count);
      if (db_out != nullptr) convert(db.read(db_out, first, count), dbs.data(), count);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const C m = mean_of(args, r);
      const C s = *rstd.read(args.in[kRstd], r, 1);
      const C* dys = dy.read(args.in[0], r * cols + first, count);
      const C* xs = x.read(args.in[1], r * cols + first, count);
      for (std::int64_t i = 0; i < count; ++i) {
        dws[static_cast<std::size_t>(i)] += dys[i] * centred<kHasMean>(xs[i], m) * s;
        if constexpr (kHasMean) dbs[static_cast<std::size_t>(i)] += dys[i];
      }
    }
    if (args.out[1] != nullptr)
      dw.write(args.out[1], first, count, [&](C* to) { convert(dws.data(), to, count); });
    if (db_out != nullptr) db.write(db_out, first, count, [&](C* to) { convert(dbs.data(), to, count); });
  }

  /// dx = rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)) (+ residual), g = dy * w; rmsnorm's lacks
  /// mean_C(g)
  void row(const KernelArgs& args, std::int64_t r) const {
    const C* dys = dy.read(args.in[0], r * cols, cols);
    const C* xs = x.read(args.in[1], r * cols, cols);
    const C* ws = weight.read(args.in[2], cols);
    const C* rest = has_residual ? residual.read(args.in[kResidual], r * cols, cols) : nullptr;
    const C m = mean_of(args, r);
    const C s = *rstd.read(args.in[kRstd], r, 1);
    double sum_g = 0;
    double sum_g_xhat = 0;
#pragma omp simd reduction(+ : sum_g, sum_g_xhat)
    for (std::int64_t i = 0; i < cols; ++i) {
      const C g = dys[i] * ws[i];
      if constexpr (kHasMean) sum_g += static_cast<double>(g);
      sum_g_xhat += static_cast<double>(g) * static_cast<double>(centred<kHasMean>(xs[i], m) * s);
    }
    const C mean_g = static_cast<C>(sum_g / static_cast<double>(cols));
    const C mean_g_xhat = static_cast<C>(sum_g_xhat / static_cast<double>(cols));
    dx.write(args.out[0], r * cols, cols, [&](C* to) {
      for (std::int64_t i = 0; i < cols; ++i) {
        const C g = centred<kHasMean>(dys[i] * ws[i], mean_g);
        const C d = s * (g - centred<kHasMean>(xs[i], m) * s * mean_g_xhat);
        to[i] = rest != nullptr ? d + rest[i] : d;
      }
    });
    if (!rebuilds) return;
    const C* bs = kHasMean ? bias.read(args.in[kBias], cols) : nullptr;
    y.write(args.out[kRebuilt], r * cols, cols,
            [&](C* to) { write_row<kHasMean>(xs, m, s, ws, bs, cols, to); });
  }
};

template <bool kHasMean>
Kernel make_forward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t cols = v.in(0).shape[-1];
    const Forward<kHasMean, C> forward{.cols = cols,
                                       .eps = v.op.attrs.number("eps"),
                                       .weight = NormWeight<C>(v, 1, cols, C(1)),
                                       .bias = NormWeight<C>(v, 2, cols, C(0)),
                                       .x = in_operand<C>(v, 0, cols),
                                       .y = out_operand<C>(v, 0, cols),
                                       .mean = kHasMean ? out_operand<C>(v, 1, 1) : Operand<C>(),
                                       .rstd = out_operand<C>(v, kHasMean ? 2 : 1, 1)};
    return [forward, rows = v.in(0).shape.numel() / cols](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) { forward.row(args, r); });
    };
  });
}

template <bool kHasMean>
Kernel make_backward(const OpView& v) {
  if (v.op.attrs.flag("bias_gradient")) return {};  // the plain ops run instead
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    using Of = Backward<kHasMean, C>;
    const std::int64_t cols = v.in(1).shape[-1];
    const bool has_residual = v.has_in(Of::kResidual);
    const bool rebuilds = v.op.attrs.flag("rebuilds");
    const Of backward{.rows = v.in(1).shape.numel() / cols,
                      .cols = cols,
                      .accumulate = v.accumulates(),
                      .has_residual = has_residual,
                      .rebuilds = rebuilds,
                      .weight = NormWeight<C>(v, 2, cols, C(1)),
                      .bias = NormWeight<C>(v, Of::kBias, cols, C(0)),
                      .dy = in_operand<C>(v, 0, cols),
                      .x = in_operand<C>(v, 1, cols),
                      .mean = kHasMean ? in_operand<C>(v, 3, 1) : Operand<C>(),
                      .rstd = in_operand<C>(v, Of::kRstd, 1),
                      .residual = has_residual ? in_operand<C>(v, Of::kResidual, cols) : Operand<C>(),
                      .dx = out_operand<C>(v, 0, cols),
                      .dw = gradient_operand<C>(v, 1),
                      .db = kHasMean ? gradient_operand<C>(v, 2) : Operand<C>(),
                      .y = rebuilds ? out_operand<C>(v, Of::kRebuilt, cols) : Operand<C>()};
    // Weight gradients first: dx may overwrite dy.
    return [backward](const KernelArgs& args) {
      if (args.out[1] != nullptr || (kHasMean && args.out[2] != nullptr)) {
        for_columns(backward.cols,
                    [&](std::int64_t first, std::int64_t count) { backward.weights(args, first, count); });
      }
      for_rows(backward.rows, [&](std::int64_t r) { backward.row(args, r); });
    };
  });
}

}  // namespace

Kernel make_layernorm(const OpView& v) { return make_forward<true>(v); }
Kernel make_rmsnorm(const OpView& v) { return make_forward<false>(v); }

MakerRows norms_rows() {
  namespace ops = program::ops;
  return {{&ops::kLayerNorm, make_layernorm, "reference::layernorm"},
          {&ops::kLayerNormBackward, make_backward<true>, "reference::layernorm_backward"},
          {&ops::kRmsNorm, make_rmsnorm, "reference::rmsnorm"},
          {&ops::kRmsNormBackward, make_backward<false>, "reference::rmsnorm_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
