// causal_softmax: p[.., i, j] = exp(scale * s[.., i, j]) / sum over j' <= i, 0 for j > i; and its gradient.
#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
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

}  // namespace

Kernel make_causal_softmax(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t seq = v.in(0).shape[-1];
    const Dispatches for_all_rows(v, v.in(0).shape.numel() / seq);
    const C scale = static_cast<C>(v.op.attrs.number("scale"));
    return [=, s = in_operand<C>(v, 0, seq), p = out_operand<C>(v, 0, seq)](const KernelArgs& args) {
      for_all_rows([&](std::int64_t r) {
        const std::int64_t seen = r % seq + 1;
        const auto scores = array(s.read(args.in[0], r * seq, seen), seen);
        p.write(args.out[0], r * seq, seq, [&](C* to) {
          auto row = array(to, seen);
          const C greatest = scale < 0 ? scores.minCoeff() : scores.maxCoeff();
          row = (scale * (scores - greatest)).exp();
          row *= static_cast<C>(1 / sum(to, seen));
          array(to + seen, seq - seen).setZero();
        });
      });
    };
  });
}

/// ds = scale * p * (dp - sum_j p dp)
Kernel make_causal_softmax_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t seq = v.in(0).shape[-1];
    const Dispatches for_all_rows(v, v.in(0).shape.numel() / seq);
    const C scale = static_cast<C>(v.op.attrs.number("scale"));
    return [=, dp = in_operand<C>(v, 0, seq), p = in_operand<C>(v, 1, seq),
            ds = out_operand<C>(v, 0, seq)](const KernelArgs& args) {
      for_all_rows([&](std::int64_t r) {
        const std::int64_t seen = r % seq + 1;
        const C* dps = dp.read(args.in[0], r * seq, seen);
        const C* ps = p.read(args.in[1], r * seq, seen);
        const C mean = static_cast<C>(dot(dps, ps, seen));
        ds.write(args.out[0], r * seq, seq, [&](C* to) {
          array(to, seen) = scale * array(ps, seen) * (array(dps, seen) - mean);
          array(to + seen, seq - seen).setZero();
        });
      });
    };
  });
}

MakerRows softmax_rows() {
  namespace ops = program::ops;
  return {{&ops::kCausalSoftmax, make_causal_softmax, "reference::causal_softmax"},
          {&ops::kCausalSoftmaxBackward, make_causal_softmax_backward, "reference::causal_softmax_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
