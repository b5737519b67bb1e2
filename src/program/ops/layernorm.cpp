// layernorm: y = (x - mean) * rstd * w + b over the last dimension C, rstd = 1 / sqrt(var + eps)
// (Ba et al., 2016; biased variance). add_layernorm: r = x + y first, then the norm of r.
//
// Outputs of layernorm: y, mean [rows], rstd [rows]. Outputs of add_layernorm: r, y, mean, rstd.
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

Shape rows_of(const Shape& x) { return {x.numel() / x[-1]}; }

void expect_weight(const Program& p, const Op& op, TensorId weight, const Shape& x) {
  expect(p.shape(weight) == Shape{x[-1]}, op,
         fmt::format("weight {} does not match x {}", p.shape(weight).str(), x.str()));
}

std::vector<Tensor> infer_layernorm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_weight(p, op, op.inputs.at(1), x);
  expect_weight(p, op, op.inputs.at(2), x);
  return {{.shape = x},
          {.shape = rows_of(x), .full_precision = true},
          {.shape = rows_of(x), .full_precision = true}};
}

/// 7 per element: sum, subtract, square, sum of squares, normalise, scale, shift.
Cost cost_layernorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 7 * p.shape(op.inputs.at(0)).numel()};
}

/// Inputs of the backward op: dy, x, w, mean, rstd [, residual gradient to add]. Outputs: dx, dw, db.
/// dx = rstd * (dy*w - mean_C(dy*w) - xhat * mean_C(dy*w*xhat)), dw = sum dy*xhat, db = sum dy.
void gradient_layernorm(GradientContext& g) {
  const auto dw = g.weight_target(1);
  const auto db = g.weight_target(2);
  const TensorId dx = g.new_gradient(0);
  g.emit_into(kLayerNormBackward, {g.gradient(0), g.input(0), g.input(1), g.output(1), g.output(2)},
              {{"accumulate", dw.accumulate ? 1.0 : 0.0}}, {dx, dw.id, db.id});
  g.propagate(0, dx);
}

std::vector<Tensor> infer_layernorm_backward(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(1));
  const Tensor weight{.shape = {x[-1]}, .role = Role::gradient, .full_precision = true};
  return {{.shape = x, .role = Role::activation_gradient}, weight, weight};
}

/// 14 per element, 15 with a residual gradient.
Cost cost_layernorm_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = (op.inputs.size() > 5 ? 15 : 14) * p.shape(op.inputs.at(1)).numel()};
}

/// Inputs: x, y, w, b.
std::vector<Tensor> infer_add_layernorm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_weight(p, op, op.inputs.at(2), x);
  return {{.shape = x},
          {.shape = x},
          {.shape = rows_of(x), .full_precision = true},
          {.shape = rows_of(x), .full_precision = true}};
}

Cost cost_add_layernorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 8 * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kLayerNorm{.name = "layernorm",
                       .infer = infer_layernorm,
                       .cost = cost_layernorm,
                       .gradient = gradient_layernorm,
                       .cheap_to_recompute = true};
const OpDef kLayerNormBackward{.name = "layernorm_backward",
                               .infer = infer_layernorm_backward,
                               .cost = cost_layernorm_backward,
                               .in_place_input = 0};
const OpDef kAddLayerNorm{.name = "add_layernorm", .infer = infer_add_layernorm, .cost = cost_add_layernorm};

}  // namespace rooflm::program::ops
