// Experts: route, dispatch, gather_rows and combine, and their gradients. Every sum has one order.
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "program/loss_scale.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;

std::int32_t* ids_of(void* data) { return static_cast<std::int32_t*>(data); }

/// A row of numbers for each thread.
template <class C>
class ThreadRows {
 public:
  ThreadRows(const OpView& v, Index width)
      : stride_((width + 15) / 16 * 16), rows_(aligned_array<C>(v.context->threads() * stride_)) {}
  [[nodiscard]] C* own() const { return rows_.get() + omp_get_thread_num() * stride_; }

 private:
  Index stride_;
  std::shared_ptr<C[]> rows_;
};

/// Added to sums of scores that are divided by: all sigmoids may be 0.
constexpr double kLeastSum = 1e-20;

/// How scores become weights.
struct Routing {
  Index experts, active;
  bool is_sigmoid, is_normalised;
  double scale, balance, z_loss, share;

  explicit Routing(const OpView& v)
      : experts(v.integer("experts")),
        active(v.integer("active")),
        is_sigmoid(v.op.attrs.flag("sigmoid")),
        is_normalised(v.op.attrs.flag("normalised")),
        scale(v.op.attrs.number("scale")),
        balance(v.op.attrs.number("balance")),
        z_loss(v.op.attrs.number("z_loss")),
        share(v.op.attrs.number("share")) {}

  /// s [E] of logits [E].
  template <class C>
  void score(const C* logits, C* s) const {
    const auto x = array(logits, experts);
    auto to = array(s, experts);
    if (is_sigmoid) {
      to = C(1) / (C(1) + (-x).exp());
    } else {
      to = (x - x.maxCoeff()).exp();
      to /= to.sum();
    }
  }
  template <class C>
  [[nodiscard]] C chosen_sum(const C* s, const std::int32_t* chosen) const {
    C sum = static_cast<C>(kLeastSum);
    for (Index k = 0; k < active; ++k) sum += s[chosen[k]];
    return sum;
  }
};

/// The experts with the K highest numbers, of equal ones the lowest.
template <class C>
void choose(const C* numbers, Index experts, Index active, std::int32_t* chosen) {
  for (Index k = 0; k < active; ++k) {
    Index best = -1;
    for (Index e = 0; e < experts; ++e) {
      if (best >= 0 && !(numbers[e] > numbers[best])) continue;
      if (std::find(chosen, chosen + k, static_cast<std::int32_t>(e)) == chosen + k) best = e;
    }
    chosen[k] = static_cast<std::int32_t>(best);
  }
}

Kernel make_route(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Routing routing(v);
    const bool has_bias = v.has_in(1);
    return [=, tokens = rows_of(v.in(0)), logits = in_operand<C>(v, 0, routing.experts),
            bias = in_operand<C>(v, has_bias ? 1 : 0, routing.experts),
            weights = out_operand<C>(v, 0, routing.active), scores = ThreadRows<C>(v, routing.experts),
            ranked = ThreadRows<C>(v, routing.experts)](const KernelArgs& args) {
      for_rows(tokens, [&](Index n) {
        C* s = scores.own();
        routing.score(logits.read(args.in[0], n * routing.experts, routing.experts), s);
        const C* numbers = s;
        if (has_bias) {
          const C* offsets = bias.read(args.in[1], 0, routing.experts);
          std::transform(s, s + routing.experts, offsets, ranked.own(), std::plus<>());
          numbers = ranked.own();
        }
        std::int32_t* chosen = ids_of(args.out[1]) + n * routing.active;
        choose(numbers, routing.experts, routing.active, chosen);
        const C sum = routing.is_normalised ? routing.chosen_sum(s, chosen) : C(1);
        weights.write(args.out[0], n * routing.active, routing.active, [&](C* to) {
          for (Index k = 0; k < routing.active; ++k)
            to[k] = static_cast<C>(routing.scale) * s[chosen[k]] / sum;
        });
      });
    };
  });
}

/// to [E] = d loss / d scores of a token: of its weights, and `spread` [E] of its shares of the scores. The
/// shares are the scores themselves, or sigmoids over their sum.
template <class C>
void score_gradient(const Routing& r, const C* s, const std::int32_t* chosen, const C* dweights,
                    const C* spread, C* to) {
  auto ds = array(to, r.experts);
  const auto h = array(spread, r.experts);
  if (r.is_sigmoid) {
    const auto scores = array(s, r.experts);
    const C sum = scores.sum() + static_cast<C>(kLeastSum);
    ds = (h - (h * scores).sum() / sum) / sum;
  } else {
    ds = h;
  }
  C sum = C(1);
  C mean = C(0);
  if (r.is_normalised) {
    sum = r.chosen_sum(s, chosen);
    for (Index k = 0; k < r.active; ++k) mean += dweights[k] * s[chosen[k]] / sum;
  }
  for (Index k = 0; k < r.active; ++k) to[chosen[k]] += static_cast<C>(r.scale) * (dweights[k] - mean) / sum;
}

/// to [E] = d loss / d logits of d loss / d scores, ds [E], and of the z-loss: `z` times the square of
/// logsumexp.
template <class C>
void logit_gradient(const Routing& r, const C* logits, const C* s, const C* ds, C z, C* to) {
  const auto x = array(logits, r.experts);
  const auto scores = array(s, r.experts);
  const auto d = array(ds, r.experts);
  auto dx = array(to, r.experts);
  if (r.is_sigmoid) {
    dx = d * scores * (C(1) - scores);
  } else {
    dx = scores * (d - (d * scores).sum());
  }
  if (z == C(0)) return;
  const C most = x.maxCoeff();
  const C lse = most + std::log((x - most).exp().sum());
  dx += C(2) * z * lse * (x - lse).exp();
}

Kernel make_route_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Routing routing(v);
    const Index width = routing.experts;
    const Index tokens = rows_of(v.in(1));
    const bool is_scaled = v.has_in(3);
    return [=, dweights = in_operand<C>(v, 0, routing.active), logits = in_operand<C>(v, 1, width),
            dlogits = out_operand<C>(v, 0, width), scores = ThreadRows<C>(v, width),
            ds = ThreadRows<C>(v, width), spread = aligned_array<C>(width)](const KernelArgs& args) {
      const std::int32_t* experts = ids_of(args.in[2]);
      const double loss_scale = is_scaled ? program::loss_scale_of(static_cast<const float*>(args.in[3])) : 1;
      const double of_token = routing.share * loss_scale / static_cast<double>(tokens);
      // balance E f_e / N, with f_e = rows of e / N
      std::fill_n(spread.get(), width, C(0));
      for (Index i = 0; i < tokens * routing.active; ++i) spread[experts[i]] += C(1);
      array(spread.get(), width) *= static_cast<C>(routing.balance * static_cast<double>(width) /
                                                   static_cast<double>(tokens) * of_token);
      const C z = static_cast<C>(routing.z_loss * of_token);
      for_rows(tokens, [&](Index n) {
        const C* x = logits.read(args.in[1], n * width, width);
        routing.score(x, scores.own());
        score_gradient(routing, scores.own(), experts + n * routing.active,
                       dweights.read(args.in[0], n * routing.active, routing.active), spread.get(), ds.own());
        dlogits.write(args.out[0], n * width, width,
                      [&](C* to) { logit_gradient(routing, x, scores.own(), ds.own(), z, to); });
      });
    };
  });
}

/// A counting sort, in the order of tokens.
Kernel make_dispatch(const OpView& v) {
  const Index experts = v.integer("experts");
  const auto next = std::make_shared<std::vector<std::int32_t>>(static_cast<std::size_t>(experts));
  return {[=, rows = v.in(0).shape.numel()](const KernelArgs& args) {
    const std::int32_t* chosen = ids_of(args.in[0]);
    std::int32_t* order = ids_of(args.out[0]);
    std::int32_t* places = ids_of(args.out[1]);
    std::int32_t* offsets = ids_of(args.out[2]);
    std::fill_n(offsets, experts + 1, 0);
    for (Index i = 0; i < rows; ++i) ++offsets[chosen[i] + 1];
    std::partial_sum(offsets, offsets + experts + 1, offsets);
    std::copy_n(offsets, experts, next->begin());
    for (Index i = 0; i < rows; ++i) {
      places[i] = (*next)[static_cast<std::size_t>(chosen[i])]++;
      order[places[i]] = static_cast<std::int32_t>(i);
    }
  }};
}

Kernel make_gather_rows(const OpView& v) {
  const Index active = v.integer("active");
  const auto row_bytes = v.in(0).shape[-1] * static_cast<Index>(core::size_of(v.in(0).dtype));
  if (v.in(0).dtype != v.out(0).dtype) return {};
  return {[=, rows = rows_of(v.out(0))](const KernelArgs& args) {
    const std::int32_t* order = ids_of(args.in[1]);
    const auto* from = static_cast<const std::byte*>(args.in[0]);
    auto* to = static_cast<std::byte*>(args.out[0]);
    for_rows(rows, [&](Index r) {
      std::memcpy(to + r * row_bytes, from + order[r] / active * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    });
  }};
}

/// y[n] = sum over k of w[n, k] rows[places[n, k]]; `weights_in` is the input of w, 0: all are 1. The places
/// follow.
template <class C>
Kernel sum_rows(const OpView& v, std::size_t weights_in) {
  const Index active = v.integer("active");
  const Index cols = v.in(0).shape[-1];
  const Index tokens = v.in(weights_in + 1).shape[0];
  return {[=, rows = in_operand<C>(v, 0, cols), weights = in_operand<C>(v, weights_in, active),
           y = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
    const std::int32_t* places = ids_of(args.in[weights_in + 1]);
    for_rows(tokens, [&](Index n) {
      const C* w = weights_in == 0 ? nullptr : weights.read(args.in[weights_in], n * active, active);
      y.write(args.out[0], n * cols, cols, [&](C* to) {
        std::fill_n(to, cols, C(0));
        for (Index k = 0; k < active; ++k) {
          const C* row = rows.read(args.in[0], places[n * active + k] * cols, cols);
          const C factor = w == nullptr ? C(1) : w[k];
#pragma omp simd
          for (Index i = 0; i < cols; ++i) to[i] += factor * row[i];
        }
      });
    });
  }};
}

Kernel make_gather_rows_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) { return sum_rows<C>(v, 0); });
}

Kernel make_combine(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) { return sum_rows<C>(v, 1); });
}

Kernel make_combine_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Index active = v.integer("active");
    const Index cols = v.in(1).shape[-1];
    const Index tokens = v.in(3).shape[0];
    return [=, dy = in_operand<C>(v, 0, cols), rows = in_operand<C>(v, 1, cols),
            weights = in_operand<C>(v, 2, active), drows = out_operand<C>(v, 0, cols),
            dweights = out_operand<C>(v, 1, active)](const KernelArgs& args) {
      const std::int32_t* places = ids_of(args.in[3]);
      for_rows(tokens, [&](Index n) {
        const C* d = dy.read(args.in[0], n * cols, cols);
        const C* w = weights.read(args.in[2], n * active, active);
        dweights.write(args.out[1], n * active, active, [&](C* to) {
          for (Index k = 0; k < active; ++k) {
            const Index at = places[n * active + k] * cols;
            to[k] = static_cast<C>(dot(d, rows.read(args.in[1], at, cols), cols));
            drows.write(args.out[0], at, cols, [&](C* row) { array(row, cols) = w[k] * array(d, cols); });
          }
        });
      });
    };
  });
}

}  // namespace

MakerRows experts_rows() {
  namespace ops = program::ops;
  return {{&ops::kRoute, make_route, "reference::route"},
          {&ops::kRouteBackward, make_route_backward, "reference::route_backward"},
          {&ops::kDispatch, make_dispatch, "reference::dispatch"},
          {&ops::kGatherRows, make_gather_rows, "reference::gather_rows"},
          {&ops::kGatherRowsBackward, make_gather_rows_backward, "reference::gather_rows_backward"},
          {&ops::kCombine, make_combine, "reference::combine"},
          {&ops::kCombineBackward, make_combine_backward, "reference::combine_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
