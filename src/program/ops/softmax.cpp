// causal_softmax: p[.., i, j] = exp(scale * s[.., i, j]) / sum over j' <= i, and 0 for j > i. Attribute:
// scale.
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_softmax(const Program& p, const Op& op) {
  const auto& s = p.shape(op.inputs.at(0));
  expect(s.rank() >= 2 && s[-1] == s[-2], op,
         [&] { return fmt::format("expected scores [.., T, T], got {}", s.str()); });
  return {{.shape = s}};
}

/// 5 per element: scale, maximum, subtract and exp, sum, divide.
Cost cost_softmax(const Program& p, const Op& op) {
  return {.elementwise_flop = 5 * p.shape(op.inputs.at(0)).numel(),
          .launches = op.attrs.flag("looped") ? op.attrs.integer("batch") : 1};
}

/// ds = scale * p * (dp - sum_j p dp); inputs of the backward op: dp, p.
void gradient_softmax(GradientContext& g) {
  g.propagate(0, g.emit(kCausalSoftmaxBackward, {g.gradient(0), g.output(0)}, g.op().attrs).at(0));
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
                                   .infer = infer_softmax,
                                   .cost = cost_softmax_backward,
                                   .in_place_input = 0};

}  // namespace rooflm::program::ops
