// Cases of experts: 3 of 5 for each token, one of which no token takes.
#include <vector>

#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::Shape;
using program::Attributes;
using program::TensorId;

constexpr std::int64_t kExperts = 5;
constexpr std::int64_t kActive = 3;
constexpr std::int64_t kIdle = 3;

const Attributes kPlaces{{"experts", kExperts}, {"active", kActive}};

Attributes routing(bool sigmoid, bool normalised, double scale) {
  Attributes attrs = kPlaces;
  attrs.set("sigmoid", sigmoid);
  attrs.set("normalised", normalised);
  attrs.set("scale", scale);
  for (const char* loss : {"balance", "z_loss"}) attrs.set(loss, 0.0);
  attrs.set("share", 1.0);
  return attrs;
}

/// Rows in the order of experts, as dispatch gives them: token n takes the three busy experts from n on.
struct Sorted {
  TensorId experts, order, places, offsets;
  Sorted(CaseWriter& w, std::int64_t tokens) {
    std::vector<double> chosen(static_cast<std::size_t>(tokens * kActive));
    std::vector<double> order_of, place_of(chosen.size()), offset_of{0};
    constexpr std::int64_t kBusy = kExperts - 1;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t busy = (at / kActive + at % kActive) % kBusy;
      chosen[i] = number(busy < kIdle ? busy : busy + 1);
    }
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (chosen[i] != number(e)) continue;
        place_of[i] = static_cast<double>(order_of.size());
        order_of.push_back(static_cast<double>(i));
      }
      offset_of.push_back(static_cast<double>(order_of.size()));
    }
    const auto add = [&](const Shape& shape, const std::vector<double>& values) {
      const TensorId id = w.ids(shape, shape.numel());
      w.fix(id, values);
      return id;
    };
    experts = add({tokens, kActive}, chosen);
    order = add({tokens * kActive}, order_of);
    places = add({tokens, kActive}, place_of);
    offsets = add({kExperts + 1}, offset_of);
  }
};

void add_grouped(std::vector<Case>& cases, const Sizes& s, std::int64_t rows) {
  for (const bool trans_b : {true, false}) {
    CaseWriter w(trans_b ? "grouped_matmul x W^T" : "grouped_matmul x W");
    const Sorted sorted(w, rows / kActive);
    const TensorId x = w.activation({rows, s.channels});
    const TensorId weight =
        w.weight(trans_b ? Shape{kExperts, s.width, s.channels} : Shape{kExperts, s.channels, s.width});
    cases.push_back(w.done(w.op(ops::kGroupedMatmul, {x, weight, sorted.offsets},
                                ops::grouped_matmul(kExperts, rows, s.width, s.channels, trans_b))));
  }
  CaseWriter w("grouped_matmul tied");  // two with one weight: gradients accumulate
  const Sorted sorted(w, rows / kActive);
  const TensorId weight = w.weight({kExperts, s.channels, s.channels});
  const Attributes attrs = ops::grouped_matmul(kExperts, rows, s.channels, s.channels, true);
  const TensorId y =
      w.op(ops::kGroupedMatmul, {w.activation({rows, s.channels}), weight, sorted.offsets}, attrs)[0];
  cases.push_back(w.done({y, w.op(ops::kGroupedMatmul, {y, weight, sorted.offsets}, attrs)[0]}));
}

}  // namespace

void add_expert_cases(std::vector<Case>& cases, const Sizes& s) {
  const std::int64_t tokens = s.batch * s.seq;
  for (const bool sigmoid : {false, true}) {
    for (const bool normalised : {false, true}) {
      CaseWriter w(std::string("route by ") + (sigmoid ? "sigmoids" : "softmax") +
                   (normalised ? " normalised" : ""));
      std::vector<TensorId> inputs{w.activation({s.batch, s.seq, kExperts})};
      if (sigmoid) inputs.push_back(w.weight({kExperts}));  // the bias
      cases.push_back(w.done({w.op(ops::kRoute, inputs, routing(sigmoid, normalised, 2.5))[0]}));
    }
  }
  for (const char* const kind : {"groups", "mixer"}) {
    CaseWriter w(std::string("route ") + kind);
    Attributes attrs = routing(false, false, 2.5);
    attrs.set("experts", std::int64_t{6});
    if (kind == std::string("groups")) {
      for (const auto& [key, value] : {std::pair("groups", 3), {"active_groups", 2}, {"group_best", 2}})
        attrs.set(key, std::int64_t{value});
    } else {
      attrs.set("jitter", 0.2);
    }
    cases.push_back(w.done({w.op(ops::kRoute, {w.activation({s.batch, s.seq, 6})}, attrs)[0]}));
  }
  {
    CaseWriter w("weights of what experts read");
    const Sorted sorted(w, tokens);
    Attributes attrs = kPlaces;
    attrs.set("weighs_input", true);
    const TensorId x = w.activation({s.batch, s.seq, s.channels});
    const TensorId weights = w.add("weights", {tokens, kActive}, program::Role::activation, true);
    const TensorId rows = w.op(ops::kGatherRows, {x, sorted.order, sorted.places, weights}, attrs)[0];
    cases.push_back(w.done({rows, w.op(ops::kCombine, {rows, program::kNone, sorted.places}, attrs)[0]}));
  }
  {
    CaseWriter w("balance_bias");
    const Sorted one(w, tokens), two(w, 2 * tokens);
    const TensorId bias = w.weight({kExperts});
    w.op_into(ops::kBalanceBias, {bias, one.offsets, two.offsets}, {{"rate", 0.01}}, {bias});
    cases.push_back(w.done());
  }
  {
    CaseWriter w("dispatch");
    w.op(ops::kDispatch, {Sorted(w, tokens).experts}, kPlaces);
    cases.push_back(w.done());
  }
  {
    CaseWriter w("gather_rows");
    const Sorted sorted(w, tokens);
    const TensorId x = w.activation({s.batch, s.seq, s.channels});
    cases.push_back(w.done(w.op(ops::kGatherRows, {x, sorted.order, sorted.places}, kPlaces)));
  }
  {
    CaseWriter w("combine");
    const Sorted sorted(w, tokens);
    const TensorId rows = w.activation({tokens * kActive, s.channels});
    const TensorId weights = w.add("weights", {tokens, kActive}, program::Role::activation, true);
    cases.push_back(w.done(w.op(ops::kCombine, {rows, weights, sorted.places}, kPlaces)));
  }
  add_grouped(cases, s, tokens * kActive);
}

}  // namespace rooflm::tests
