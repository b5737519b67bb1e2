// causal_softmax: p[.., i, j] = exp(scale * s[.., i, j]) / sum over j' <= i, 0 for j > i, with windows, caps,
// ALiBi and sinks (program/scores.h); and its gradient.
#include <memory>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/scores.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// Rows per launch and number of launches: one per matrix of the batch if looped.
struct Dispatches {
  std::int64_t count, rows;
  Dispatches(const OpView& v, std::int64_t all_rows)
      : count(v.op.attrs.flag("looped") ? v.integer("batch") : 1), rows(all_rows / count) {}
  template <class Body>
  void operator()(Body&& body) const {
    for (std::int64_t d = 0; d < count; ++d) {
      for_rows(rows, [&](std::int64_t r) { body(d * rows + r); });
    }
  }
};

/// Heads of scores [B, H, T, T]; 1 for other shapes, which have no heads.
std::int64_t heads_of(const core::Shape& scores) { return scores.rank() == 4 ? scores[1] : 1; }

}  // namespace

Kernel make_causal_softmax(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t seq = v.in(0).shape[-1];
    const Dispatches for_all_rows(v, v.in(0).shape.numel() / seq);
    const std::int64_t heads = heads_of(v.in(0).shape);
    const ScoreRows<C> score{program::Scores::of(v.op.attrs), heads};
    const C scale = score.factor();
    return [=, s = in_operand<C>(v, 0, seq), sinks = Sinks<C>::of(v, 1),
            p = out_operand<C>(v, 0, seq)](const KernelArgs& args) {
      for_all_rows([&](std::int64_t r) {
        const std::int64_t t = r % seq;
        const std::int64_t h = r / seq % heads;
        const std::int64_t first = score.rule.first_key(t);
        const std::int64_t seen = t + 1 - first;
        const C* products = s.read(args.in[0], r * seq + first, seen);
        p.write(args.out[0], r * seq, seq, [&](C* to) {
          if (to + first != products) std::copy_n(products, seen, to + first);
          score.apply(h, t, first, seen, to + first);
          auto row = array(to + first, seen);
          C greatest = scale < 0 ? row.minCoeff() : row.maxCoeff();
          if (sinks) greatest = std::max(greatest, sinks.of_head(args, h) / scale);
          row = (scale * (row - greatest)).exp();
          double total = sum(to + first, seen);
          if (sinks) total += std::exp(static_cast<double>(sinks.of_head(args, h) - scale * greatest));
          row *= static_cast<C>(1 / total);
          array(to, first).setZero();
          array(to + t + 1, seq - t - 1).setZero();
        });
      });
    };
  });
}

/// ds = scale * p * (dp - sum_j p dp), times the derivative of the cap. Of a sink dp = 0, and its p is what
/// the others leave.
Kernel make_causal_softmax_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t seq = v.in(0).shape[-1];
    const Dispatches for_all_rows(v, v.in(0).shape.numel() / seq);
    const std::int64_t batch = v.in(0).shape[0];
    const std::int64_t heads = heads_of(v.in(0).shape);
    const ScoreRows<C> score{program::Scores::of(v.op.attrs), heads};
    const bool has_sinks = v.has_in(3);
    const bool has_cap = score.rule.cap > 0;
    const std::int64_t rows = v.in(0).shape.numel() / seq;
    const auto d_sinks = has_sinks ? aligned_array<double>(rows) : nullptr;  // of each row, then of each head
    return [=, dp = in_operand<C>(v, 0, seq), p = in_operand<C>(v, 1, seq),
            s = has_cap ? in_operand<C>(v, 2, seq) : Operand<C>(), ds = out_operand<C>(v, 0, seq),
            sinks_dtype = has_sinks ? v.out(1).dtype : kComputed<C>,
            accumulates = v.accumulates()](const KernelArgs& args) {
      for_all_rows([&](std::int64_t r) {
        const std::int64_t t = r % seq;
        const std::int64_t first = score.rule.first_key(t);
        const std::int64_t seen = t + 1 - first;
        const C* dps = dp.read(args.in[0], r * seq + first, seen);
        const C* ps = p.read(args.in[1], r * seq + first, seen);
        const double mean = dot(dps, ps, seen);
        if (has_sinks) d_sinks[r] = -(1 - sum(ps, seen)) * mean;
        ds.write(args.out[0], r * seq, seq, [&](C* to) {
          array(to + first, seen) = array(ps, seen) * (array(dps, seen) - static_cast<C>(mean));
          score.apply_derivative(t, has_cap ? s.read(args.in[2], r * seq + first, seen) : nullptr, seen,
                                 to + first);
          array(to, first).setZero();
          array(to + t + 1, seq - t - 1).setZero();
        });
      });
      if (!has_sinks) return;
      for (std::int64_t i = 0; i < batch * heads; ++i) d_sinks[i] = sum(d_sinks.get() + i * seq, seq);
      write_sink_gradients(d_sinks.get(), batch, heads, sinks_dtype, accumulates, args.out[1]);
    };
  });
}

MakerRows softmax_rows() {
  namespace ops = program::ops;
  return {{&ops::kCausalSoftmax, make_causal_softmax, "reference::causal_softmax"},
          {&ops::kCausalSoftmaxBackward, make_causal_softmax_backward, "reference::causal_softmax_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
