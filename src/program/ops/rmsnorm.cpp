// rmsnorm: y = x * rstd * w over the last dimension C, rstd = 1 / sqrt(mean(x^2) + eps)
// (Zhang and Sennrich, 2019). add_rmsnorm: r = x + y first, then the norm of r.
//
// Outputs of rmsnorm: y, rstd [rows]. Outputs of add_rmsnorm: r, y, rstd.
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

std::vector<Tensor> infer_rmsnorm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_weight(p, op, op.inputs.at(1), x);
  return {{.shape = x}, {.shape = rows_of(x), .full_precision = true}};
}

/// 4 per element: square, sum, normalise, scale.
Cost cost_rmsnorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * p.shape(op.inputs.at(0)).numel()};
}

/// Inputs of the backward op: dy, x, w, rstd [, residual gradient to add]. Outputs: dx, dw.
/// dx = rstd * (dy*w - xhat * mean_C(dy*w*xhat)) with xhat = x*rstd, dw = sum dy*xhat.
void gradient_rmsnorm(GradientContext& g) {
  const auto dw = g.weight_target(1);
  const TensorId dx = g.new_gradient(0);
  g.emit_into(kRmsNormBackward, {g.gradient(0), g.input(0), g.input(1), g.output(1)},
              {{"accumulate", dw.accumulate ? 1.0 : 0.0}}, {dx, dw.id});
  g.propagate(0, dx);
}

std::vector<Tensor> infer_rmsnorm_backward(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(1));
  return {{.shape = x, .role = Role::activation_gradient},
          {.shape = {x[-1]}, .role = Role::gradient, .full_precision = true}};
}

/// 10 per element, 11 with a residual gradient.
Cost cost_rmsnorm_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = (op.inputs.size() > 4 ? 11 : 10) * p.shape(op.inputs.at(1)).numel()};
}

/// Inputs: x, y, w.
std::vector<Tensor> infer_add_rmsnorm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_weight(p, op, op.inputs.at(2), x);
  return {{.shape = x}, {.shape = x}, {.shape = rows_of(x), .full_precision = true}};
}

Cost cost_add_rmsnorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 5 * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kRmsNorm{.name = "rmsnorm",
                     .infer = infer_rmsnorm,
                     .cost = cost_rmsnorm,
                     .gradient = gradient_rmsnorm,
                     .cheap_to_recompute = true};
const OpDef kRmsNormBackward{.name = "rmsnorm_backward",
                             .infer = infer_rmsnorm_backward,
                             .cost = cost_rmsnorm_backward,
                             .in_place_input = 0};
const OpDef kAddRmsNorm{.name = "add_rmsnorm", .infer = infer_add_rmsnorm, .cost = cost_add_rmsnorm};

}  // namespace rooflm::program::ops
