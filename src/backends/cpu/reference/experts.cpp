// Experts: route, dispatch, gather_rows and combine, and their gradients. Every sum has one order.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
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
  Index groups = 1, active_groups = 1, group_best = 1;
  std::optional<double> jitter{};  ///< of a sparse mixer

  explicit Routing(const OpView& v)
      : experts(v.integer("experts")),
        active(v.integer("active")),
        is_sigmoid(v.op.attrs.flag("sigmoid")),
        is_normalised(v.op.attrs.flag("normalised")),
        scale(v.op.attrs.number("scale")),
        balance(v.op.attrs.number("balance")),
        z_loss(v.op.attrs.number("z_loss")),
        share(v.op.attrs.number("share")) {
    if (v.op.attrs.has("jitter")) jitter = v.op.attrs.number("jitter");
    if (!v.op.attrs.has("groups")) return;
    groups = v.integer("groups");
    active_groups = v.integer("active_groups");
    group_best = v.integer("group_best");
  }

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

/// Of the numbers that are not among the `count` chosen ones, the highest, of equal ones the lowest.
template <class C>
Index best_of(const C* numbers, Index all, const std::int32_t* chosen, Index count) {
  Index best = -1;
  for (Index e = 0; e < all; ++e) {
    if (best >= 0 && !(numbers[e] > numbers[best])) continue;
    if (std::find(chosen, chosen + count, static_cast<std::int32_t>(e)) == chosen + count) best = e;
  }
  return best;
}

/// The experts with the K highest numbers.
template <class C>
void choose(const C* numbers, Index experts, Index active, std::int32_t* chosen) {
  for (Index k = 0; k < active; ++k)
    chosen[k] = static_cast<std::int32_t>(best_of(numbers, experts, chosen, k));
}

/// numbers [E] of experts whose group is not chosen become the lowest there are. `sums` [G] and `ids` are
/// overwritten.
template <class C>
void keep_groups(const Routing& r, C* numbers, C* sums, std::int32_t* ids) {
  const Index of_group = r.experts / r.groups;
  for (Index g = 0; g < r.groups; ++g) {
    const Index best = std::min(r.group_best, of_group);
    choose(numbers + g * of_group, of_group, best, ids);
    sums[g] = C(0);
    for (Index i = 0; i < best; ++i) sums[g] += numbers[g * of_group + ids[i]];
  }
  choose(sums, r.groups, r.active_groups, ids);
  for (Index g = 0; g < r.groups; ++g) {
    if (std::find(ids, ids + r.active_groups, static_cast<std::int32_t>(g)) != ids + r.active_groups)
      continue;
    std::fill_n(numbers + g * of_group, of_group, -std::numeric_limits<C>::infinity());
  }
}

/// s [E] of the choice `k` of a sparse mixer: the softmax of the logits that are near the highest of those
/// not chosen before, and 0. Returns the expert with that logit.
template <class C>
Index mix(const Routing& r, const C* logits, const std::int32_t* chosen, Index k, C* s) {
  const Index best = best_of(logits, r.experts, chosen, k);
  const C most = logits[best];
  C sum = C(0);
  for (Index e = 0; e < r.experts; ++e) {
    const C reach = std::max(std::abs(logits[e]), most) * static_cast<C>(2 * *r.jitter);
    const bool is_near = most - logits[e] <= reach &&
                         std::find(chosen, chosen + k, static_cast<std::int32_t>(e)) == chosen + k;
    s[e] = is_near ? std::exp(logits[e] - most) : C(0);
    sum += s[e];
  }
  array(s, r.experts) /= sum;
  return best;
}

/// A route by a sparse mixer.
template <class C>
Kernel make_mixer(const OpView& v, const Routing& routing) {
  return [=, tokens = rows_of(v.in(0)), logits = in_operand<C>(v, 0, routing.experts),
          weights = out_operand<C>(v, 0, routing.active),
          scores = ThreadRows<C>(v, routing.experts)](const KernelArgs& args) {
    for_rows(tokens, [&](Index n) {
      const C* x = logits.read(args.in[0], n * routing.experts, routing.experts);
      std::int32_t* chosen = ids_of(args.out[1]) + n * routing.active;
      weights.write(args.out[0], n * routing.active, routing.active, [&](C* to) {
        for (Index k = 0; k < routing.active; ++k) {
          chosen[k] = static_cast<std::int32_t>(mix(routing, x, chosen, k, scores.own()));
          to[k] = static_cast<C>(routing.scale) * scores.own()[chosen[k]];
        }
      });
    });
  };
}

Kernel make_route(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Routing routing(v);
    const bool has_bias = v.has_in(1);
    if (routing.jitter) return make_mixer<C>(v, routing);
    const bool has_ranks = has_bias || routing.groups > 1;
    return [=, tokens = rows_of(v.in(0)), logits = in_operand<C>(v, 0, routing.experts),
            bias = in_operand<C>(v, has_bias ? 1 : 0, routing.experts),
            weights = out_operand<C>(v, 0, routing.active), scores = ThreadRows<C>(v, routing.experts),
            ranked = ThreadRows<C>(v, routing.experts), sums = ThreadRows<C>(v, routing.groups),
            ids = ThreadRows<std::int32_t>(v, routing.experts)](const KernelArgs& args) {
      for_rows(tokens, [&](Index n) {
        C* s = scores.own();
        routing.score(logits.read(args.in[0], n * routing.experts, routing.experts), s);
        const C* numbers = s;
        if (has_ranks) {
          std::copy_n(s, routing.experts, ranked.own());
          if (has_bias)
            array(ranked.own(), routing.experts) +=
                array(bias.read(args.in[1], 0, routing.experts), routing.experts);
          if (routing.groups > 1) keep_groups(routing, ranked.own(), sums.own(), ids.own());
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
  if (r.jitter) return;
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

/// to [E] += d loss / d logits of the weights of a sparse mixer. `s` is overwritten.
template <class C>
void add_mixer_gradient(const Routing& r, const C* logits, const std::int32_t* chosen, const C* dweights,
                        C* s, C* to) {
  for (Index k = 0; k < r.active; ++k) {
    mix(r, logits, chosen, k, s);
    const C d = static_cast<C>(r.scale) * dweights[k] * s[chosen[k]];
    array(to, r.experts) -= d * array(s, r.experts);
    to[chosen[k]] += d;
  }
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
        const std::int32_t* chosen = experts + n * routing.active;
        const C* dw = dweights.read(args.in[0], n * routing.active, routing.active);
        score_gradient(routing, scores.own(), chosen, dw, spread.get(), ds.own());
        dlogits.write(args.out[0], n * width, width, [&](C* to) {
          logit_gradient(routing, x, scores.own(), ds.own(), z, to);
          if (routing.jitter) add_mixer_gradient(routing, x, chosen, dw, scores.own(), to);
        });
      });
    };
  });
}

/// A counting sort, in the order of tokens.
Kernel make_dispatch(const OpView& v) {
  const Index experts = v.integer("experts");
  const Index rows = v.in(0).shape.numel();
  const auto most = static_cast<std::int32_t>(v.op.attrs.has("capacity") ? v.integer("capacity") : rows);
  const auto next = std::make_shared<std::vector<std::int32_t>>(static_cast<std::size_t>(experts));
  return {[=](const KernelArgs& args) {
    const std::int32_t* chosen = ids_of(args.in[0]);
    std::int32_t* order = ids_of(args.out[0]);
    std::int32_t* places = ids_of(args.out[1]);
    std::int32_t* offsets = ids_of(args.out[2]);
    std::fill_n(offsets, experts + 1, 0);
    for (Index i = 0; i < rows; ++i) {
      std::int32_t& count = offsets[chosen[i] + 1];
      count = std::min(count + 1, most);
    }
    std::partial_sum(offsets, offsets + experts + 1, offsets);
    std::copy_n(offsets, experts, next->begin());
    std::fill(order + offsets[experts], order + rows, -1);
    for (Index i = 0; i < rows; ++i) {
      std::int32_t& place = (*next)[static_cast<std::size_t>(chosen[i])];
      places[i] = place < offsets[chosen[i] + 1] ? place++ : -1;
      if (places[i] >= 0) order[places[i]] = static_cast<std::int32_t>(i);
    }
  }};
}

/// rows[r] = w x[n], r of the choice of token n with weight w.
template <class C>
Kernel weighted_rows(const OpView& v) {
  const Index active = v.integer("active");
  const Index cols = v.in(0).shape[-1];
  return [=, count = rows_of(v.out(0)), x = in_operand<C>(v, 0, cols), weights = in_operand<C>(v, 3, 1),
          rows = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
    const std::int32_t* order = ids_of(args.in[1]);
    for_rows(count, [&](Index r) {
      if (order[r] < 0)
        return rows.write(args.out[0], r * cols, cols, [&](C* to) { array(to, cols).setZero(); });
      const C w = *weights.read(args.in[3], order[r], 1);
      const C* from = x.read(args.in[0], order[r] / active * cols, cols);
      rows.write(args.out[0], r * cols, cols, [&](C* to) { array(to, cols) = w * array(from, cols); });
    });
  };
}

Kernel make_gather_rows(const OpView& v) {
  const Index active = v.integer("active");
  const auto row_bytes = v.in(0).shape[-1] * static_cast<Index>(core::size_of(v.in(0).dtype));
  if (v.has_in(3)) return with_compute_type(v, [&]<class C>(C) { return weighted_rows<C>(v); });
  if (v.in(0).dtype != v.out(0).dtype) return {};
  return {[=, rows = rows_of(v.out(0))](const KernelArgs& args) {
    const std::int32_t* order = ids_of(args.in[1]);
    const auto* from = static_cast<const std::byte*>(args.in[0]);
    auto* to = static_cast<std::byte*>(args.out[0]);
    for_rows(rows, [&](Index r) {
      const auto size = static_cast<std::size_t>(row_bytes);
      if (order[r] < 0) return (void)std::memset(to + r * row_bytes, 0, size);
      std::memcpy(to + r * row_bytes, from + order[r] / active * row_bytes, size);
    });
  }};
}

/// y[n] = sum over k of w[n, k] rows[places[n, k]]; `weights_in` is the input of w, 0: all are 1.
template <class C>
Kernel sum_rows(const OpView& v, std::size_t weights_in, std::size_t places_in) {
  const Index active = v.integer("active");
  const Index cols = v.in(0).shape[-1];
  const Index tokens = v.in(places_in).shape[0];
  return {[=, rows = in_operand<C>(v, 0, cols), weights = in_operand<C>(v, weights_in, active),
           y = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
    const std::int32_t* places = ids_of(args.in[places_in]);
    for_rows(tokens, [&](Index n) {
      const C* w = weights_in == 0 ? nullptr : weights.read(args.in[weights_in], n * active, active);
      y.write(args.out[0], n * cols, cols, [&](C* to) {
        std::fill_n(to, cols, C(0));
        for (Index k = 0; k < active; ++k) {
          if (places[n * active + k] < 0) continue;
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
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (!v.op.attrs.flag("weighs_input")) return sum_rows<C>(v, 0, 1);
    const Index active = v.integer("active");
    const Index cols = v.in(0).shape[-1];
    return [=, tokens = v.in(2).shape[0], sum = sum_rows<C>(v, 1, 2), drows = in_operand<C>(v, 0, cols),
            x = in_operand<C>(v, 3, cols),
            dweights = out_operand<C>(v, 1, active)](const KernelArgs& args) mutable {
      sum(args);
      const std::int32_t* places = ids_of(args.in[2]);
      for_rows(tokens, [&](Index n) {
        const C* from = x.read(args.in[3], n * cols, cols);
        dweights.write(args.out[1], n * active, active, [&](C* to) {
          for (Index k = 0; k < active; ++k) {
            const Index place = places[n * active + k];
            to[k] = place < 0 ? C(0)
                              : static_cast<C>(dot(from, drows.read(args.in[0], place * cols, cols), cols));
          }
        });
      });
    };
  });
}

Kernel make_combine(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) { return sum_rows<C>(v, v.has_in(1) ? 1 : 0, 2); });
}

/// drows[r] = dy[n] of the token n of row r.
template <class C>
Kernel copied_rows(const OpView& v) {
  const Index active = v.integer("active");
  const Index cols = v.in(1).shape[-1];
  return [=, tokens = v.in(3).shape[0], dy = in_operand<C>(v, 0, cols),
          drows = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
    const std::int32_t* places = ids_of(args.in[3]);
    for_rows(tokens * active, [&](Index i) {
      if (places[i] < 0) return;
      const C* from = dy.read(args.in[0], i / active * cols, cols);
      drows.write(args.out[0], places[i] * cols, cols, [&](C* to) { std::copy_n(from, cols, to); });
    });
  };
}

Kernel make_combine_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Index active = v.integer("active");
    const Index cols = v.in(1).shape[-1];
    const Index tokens = v.in(3).shape[0];
    if (!v.has_in(2)) return copied_rows<C>(v);
    return [=, dy = in_operand<C>(v, 0, cols), rows = in_operand<C>(v, 1, cols),
            weights = in_operand<C>(v, 2, active), drows = out_operand<C>(v, 0, cols),
            dweights = out_operand<C>(v, 1, active)](const KernelArgs& args) {
      const std::int32_t* places = ids_of(args.in[3]);
      for_rows(tokens, [&](Index n) {
        const C* d = dy.read(args.in[0], n * cols, cols);
        const C* w = weights.read(args.in[2], n * active, active);
        dweights.write(args.out[1], n * active, active, [&](C* to) {
          for (Index k = 0; k < active; ++k) {
            to[k] = C(0);
            if (places[n * active + k] < 0) continue;
            const Index at = places[n * active + k] * cols;
            to[k] = static_cast<C>(dot(d, rows.read(args.in[1], at, cols), cols));
            drows.write(args.out[0], at, cols, [&](C* row) { array(row, cols) = w[k] * array(d, cols); });
          }
        });
      });
    };
  });
}

/// bias[e] += rate sign(mean - rows of e), rows of all micro-batches together.
Kernel make_balance_bias(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (v.out(0).dtype != kComputed<C>) return {};
    const Index experts = v.out(0).shape.numel();
    return {[=, rate = static_cast<C>(v.op.attrs.number("rate")),
             inputs = v.op.inputs.size()](const KernelArgs& args) {
      auto* bias = static_cast<C*>(args.out[0]);
      if (args.in[0] != args.out[0]) std::copy_n(static_cast<const C*>(args.in[0]), experts, bias);
      std::int64_t all = 0;
      for (std::size_t i = 1; i < inputs; ++i) all += ids_of(args.in[i])[experts];
      for (Index e = 0; e < experts; ++e) {
        std::int64_t rows = 0;
        for (std::size_t i = 1; i < inputs; ++i) rows += ids_of(args.in[i])[e + 1] - ids_of(args.in[i])[e];
        const std::int64_t over = rows * experts - all;
        if (over != 0) bias[e] += over > 0 ? -rate : rate;
      }
    }};
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
          {&ops::kCombineBackward, make_combine_backward, "reference::combine_backward"},
          {&ops::kBalanceBias, make_balance_bias, "reference::balance_bias"}};
}

}  // namespace rooflm::backends::cpu::reference
