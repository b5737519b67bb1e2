// causal_softmax: p[.., i, j] = exp(scale * s[.., i, j]) / sum over j' <= i, and 0 for j > i. Attribute:
// scale. Optional, of scores [B, H, T, T] (program/scores.h): window, cap, alibi, and a second input sinks
// [H].
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/ops.h"
#include "program/ops/sinks.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_softmax(const Program& p, const Op& op) {
  const auto& s = p.shape(op.inputs.at(0));
  expect(s.rank() >= 2 && s[-1] == s[-2], op,
         [&] { return fmt::format("expected scores [.., T, T], got {}", s.str()); });
  const bool has_heads = op.attrs.flag("alibi") || sinks_of(op) != kNone;
  expect(!has_heads || s.rank() == 4, op,
         [&] { return fmt::format("expected scores [B, H, T, T], got {}", s.str()); });
  if (has_heads) expect_sinks(p, op, s[1]);
  return {{.shape = s}};
}

/// 5 per element: scale, maximum, subtract and exp, sum, divide.
Cost cost_softmax(const Program& p, const Op& op) {
  return {.elementwise_flop = 5 * p.shape(op.inputs.at(0)).numel(),
          .launches = op.attrs.flag("looped") ? op.attrs.integer("batch") : 1};
}

/// ds = scale * p * (dp - sum_j p dp), times the cap's derivative, for which s is kept. Inputs of the
/// backward op: dp, p [, s or none [, sinks]]. Outputs: ds [, dsinks, with `accumulate` added to].
void gradient_softmax(GradientContext& g) {
  std::vector<TensorId> inputs = {g.gradient(0), g.output(0)};
  const bool has_cap = g.op().attrs.has("cap");
  const bool has_sinks = g.input(1) != kNone;
  if (has_cap || has_sinks) inputs.push_back(has_cap ? g.input(0) : kNone);
  if (!has_sinks) return g.propagate(0, g.emit(kCausalSoftmaxBackward, inputs, g.op().attrs).at(0));
  inputs.push_back(g.input(1));
  const TensorId ds = g.new_gradient(0);
  emit_with_sinks(g, 1, kCausalSoftmaxBackward, inputs, ds);
  g.propagate(0, ds);
}

std::vector<Tensor> infer_softmax_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs = {{.shape = p.shape(op.inputs.at(0))}};
  add_gradient_of_sinks(p, op, outputs);
  return outputs;
}

/// 5 per element.
Cost cost_softmax_backward(const Program& p, const Op& op) { return cost_softmax(p, op); }

}  // namespace

const OpDef kCausalSoftmax{.name = "causal_softmax",
                           .work = Work::softmax,
                           .infer = infer_softmax,
                           .cost = cost_softmax,
                           .gradient = gradient_softmax,
                           .in_place_input = 0,
                           .cheap_to_recompute = true};
const OpDef kCausalSoftmaxBackward{.name = "causal_softmax_backward",
                                   .work = Work::softmax,
                                   .infer = infer_softmax_backward,
                                   .cost = cost_softmax_backward,
                                   .in_place_input = 0};

}  // namespace rooflm::program::ops
