// head_norm: norms of the query and key heads of a packed projection, and their gradients.
#include <array>
#include <cmath>

#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;

/// Which elements of a row are normed together.
struct HeadNorm {
  Index rows, width;    // of qkv
  Index queries, keys;  // elements
  Index size;           // of a head
  bool is_whole, is_layer, has_weights, has_biases;
  Index q_weights, k_weights;  // elements of the weights

  HeadNorm(const OpView& v, std::size_t qkv, std::size_t weights)
      : rows(rows_of(v.in(qkv))),
        width(v.in(qkv).shape[-1]),
        queries(v.integer("heads") * v.integer("head_dim")),
        keys(v.integer("kv_heads") * v.integer("head_dim")),
        size(v.integer("head_dim")),
        is_whole(v.op.attrs.flag("whole")),
        is_layer(v.op.attrs.flag("layer")),
        has_weights(v.has_in(weights)),
        has_biases(v.op.attrs.flag("head_biases")),
        q_weights(has_weights ? v.in(weights).shape[0] : 0),
        k_weights(has_weights ? v.in(weights + 1).shape[0] : 0) {}

  [[nodiscard]] Index groups() const { return is_whole ? 2 : (queries + keys) / size; }
  /// The first element of group g, and behind the last group that of v.
  [[nodiscard]] Index begin(Index g) const {
    if (is_whole) return g == 0 ? 0 : g == 1 ? queries : queries + keys;
    return g * size;
  }
  [[nodiscard]] Index end(Index g) const { return begin(g + 1); }
  [[nodiscard]] bool is_key(Index g) const { return begin(g) >= queries; }
  /// The group of column c.
  [[nodiscard]] Index group_of(Index c) const { return is_whole ? (c < queries ? 0 : 1) : c / size; }
  /// The weight of column c, of its own array.
  [[nodiscard]] Index weight_of(Index c) const {
    return c < queries ? c % q_weights : (c - queries) % k_weights;
  }
};

/// The factor of column c: 1 without weights.
template <class C>
C factor(const HeadNorm& n, Index c, const C* wq, const C* wk) {
  if (!n.has_weights) return C(1);
  return (c < n.queries ? wq : wk)[n.weight_of(c)];
}

}  // namespace

Kernel make_head_norm(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const HeadNorm n(v, 0, 1);
    const double eps = v.op.attrs.number("eps");
    return [=, x = in_operand<C>(v, 0, n.width), bq = in_operand<C>(v, n.has_biases ? 3 : 0, n.q_weights),
            bk = in_operand<C>(v, n.has_biases ? 4 : 0, n.k_weights),
            wq = in_operand<C>(v, n.has_weights ? 1 : 0, n.q_weights),
            wk = in_operand<C>(v, n.has_weights ? 2 : 0, n.k_weights), y = out_operand<C>(v, 0, n.width),
            statistics = out_operand<C>(v, 1, n.groups())](const KernelArgs& args) {
      for_rows(n.rows, [&](Index r) {
        const C* xs = x.read(args.in[0], r * n.width, n.width);
        const C* q = n.has_weights ? wq.read(args.in[1], 0, n.q_weights) : nullptr;
        const C* k = n.has_weights ? wk.read(args.in[2], 0, n.k_weights) : nullptr;
        y.write(args.out[0], r * n.width, n.width, [&](C* to) {
          for (Index g = 0; g < n.groups(); ++g) {
            const Index count = n.end(g) - n.begin(g);
            const C* from = xs + n.begin(g);
            const double mean = n.is_layer ? sum(from, count) / static_cast<double>(count) : 0;
            double square = 0;
            for (Index i = 0; i < count; ++i) {
              const double centred = static_cast<double>(from[i]) - mean;
              square += centred * centred;
            }
            const double rstd = 1 / std::sqrt(square / static_cast<double>(count) + eps);
            statistics.write(args.out[1], r * n.groups() + g, 1, [&](C* s) { *s = static_cast<C>(mean); });
            statistics.write(args.out[1], (n.rows + r) * n.groups() + g, 1,
                             [&](C* s) { *s = static_cast<C>(rstd); });
            for (Index c = n.begin(g); c < n.end(g); ++c)
              to[c] = (xs[c] - static_cast<C>(mean)) * static_cast<C>(rstd) * factor(n, c, q, k);
          }
          if (to != xs) std::copy(xs + n.queries + n.keys, xs + n.width, to + n.queries + n.keys);
          if (!n.has_biases) return;
          const C* of_q = bq.read(args.in[3], 0, n.q_weights);
          const C* of_k = bk.read(args.in[4], 0, n.k_weights);
          for (Index c = 0; c < n.queries + n.keys; ++c)
            to[c] += (c < n.queries ? of_q : of_k)[n.weight_of(c)];
        });
      });
    };
  });
}

namespace {

/// Operands of the backward op.
template <class C>
struct Backward {
  HeadNorm n;
  bool accumulate;
  Operand<C> dy, x, statistics, wq, wk, dx, dwq, dwk, dbq, dbk;

  [[nodiscard]] C mean(const KernelArgs& args, Index r, Index g) const {
    return *statistics.read(args.in[2], r * n.groups() + g, 1);
  }
  [[nodiscard]] C rstd(const KernelArgs& args, Index r, Index g) const {
    return *statistics.read(args.in[2], (n.rows + r) * n.groups() + g, 1);
  }

  /// dw[i] (+)= sum over rows, and over the heads that share w, of dy * xhat, or of dy for biases: elements
  /// [first, first + count) of the weights of the columns [begin, end).
  void weights(const KernelArgs& args, const Operand<C>& dw, std::size_t out, Index begin, Index end,
               Index elements, Index first, Index count, bool is_bias = false) const {
    std::array<double, kColumns> sums{};
    if (accumulate) convert(dw.read(args.out[out], first, count), sums.data(), count);
    for (Index r = 0; r < n.rows; ++r) {
      for (Index at = begin + first; at < end; at += elements) {
        const C* d = dy.read(args.in[0], r * n.width + at, count);
        const C* xs = x.read(args.in[1], r * n.width + at, count);
        for (Index i = 0; i < count; ++i) {
          const Index g = n.group_of(at + i);
          const C xhat = is_bias ? C(1) : (xs[i] - mean(args, r, g)) * rstd(args, r, g);
          sums[static_cast<std::size_t>(i)] += d[i] * xhat;
        }
      }
    }
    dw.write(args.out[out], first, count, [&](C* to) { convert(sums.data(), to, count); });
  }

  /// With g = dy * w: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), mean(g) 0 unless `layer`.
  void row(const KernelArgs& args, Index r) const {
    const C* d = dy.read(args.in[0], r * n.width, n.width);
    const C* xs = x.read(args.in[1], r * n.width, n.width);
    const C* q = n.has_weights ? wq.read(args.in[3], 0, n.q_weights) : nullptr;
    const C* k = n.has_weights ? wk.read(args.in[4], 0, n.k_weights) : nullptr;
    dx.write(args.out[0], r * n.width, n.width, [&](C* to) {
      for (Index g = 0; g < n.groups(); ++g) {
        const C m = mean(args, r, g);
        const C s = rstd(args, r, g);
        double sum_g = 0;
        double sum_g_xhat = 0;
        for (Index c = n.begin(g); c < n.end(g); ++c) {
          const double each = static_cast<double>(d[c] * factor(n, c, q, k));
          sum_g += each;
          sum_g_xhat += each * static_cast<double>((xs[c] - m) * s);
        }
        const auto count = static_cast<double>(n.end(g) - n.begin(g));
        const C mean_g = n.is_layer ? static_cast<C>(sum_g / count) : C(0);
        const C mean_g_xhat = static_cast<C>(sum_g_xhat / count);
        for (Index c = n.begin(g); c < n.end(g); ++c)
          to[c] = s * (d[c] * factor(n, c, q, k) - mean_g - (xs[c] - m) * s * mean_g_xhat);
      }
      if (to != d) std::copy(d + n.queries + n.keys, d + n.width, to + n.queries + n.keys);
    });
  }
};

}  // namespace

Kernel make_head_norm_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const HeadNorm n(v, 1, 3);
    const Backward<C> backward{n,
                               v.accumulates(),
                               in_operand<C>(v, 0, std::max(n.width, kColumns)),
                               in_operand<C>(v, 1, std::max(n.width, kColumns)),
                               in_operand<C>(v, 2, 1),
                               in_operand<C>(v, n.has_weights ? 3 : 0, n.q_weights),
                               in_operand<C>(v, n.has_weights ? 4 : 0, n.k_weights),
                               out_operand<C>(v, 0, n.width),
                               out_operand<C>(v, n.has_weights ? 1 : 0, kColumns),
                               out_operand<C>(v, n.has_weights ? 2 : 0, kColumns),
                               out_operand<C>(v, n.has_biases ? 3 : 0, kColumns),
                               out_operand<C>(v, n.has_biases ? 4 : 0, kColumns)};
    // Weight gradients first: dx may overwrite dy.
    return [backward](const KernelArgs& args) {
      const HeadNorm& of = backward.n;
      for_columns(of.q_weights, [&](Index first, Index count) {
        backward.weights(args, backward.dwq, 1, 0, of.queries, of.q_weights, first, count);
        if (of.has_biases)
          backward.weights(args, backward.dbq, 3, 0, of.queries, of.q_weights, first, count, true);
      });
      for_columns(of.k_weights, [&](Index first, Index count) {
        const Index end = of.queries + of.keys;
        backward.weights(args, backward.dwk, 2, of.queries, end, of.k_weights, first, count);
        if (of.has_biases)
          backward.weights(args, backward.dbk, 4, of.queries, end, of.k_weights, first, count, true);
      });
      for_rows(of.rows, [&](Index r) { backward.row(args, r); });
    };
  });
}

MakerRows head_norm_rows() {
  namespace ops = program::ops;
  return {{&ops::kHeadNorm, make_head_norm, "reference::head_norm"},
          {&ops::kHeadNormBackward, make_head_norm_backward, "reference::head_norm_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
