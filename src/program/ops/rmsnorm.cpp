// rmsnorm: y = x * rstd * w over the last dimension C, rstd = 1 / sqrt(mean(x^2) + eps)
// (Zhang and Sennrich, 2019). add_rmsnorm: r = x + y first, then the norm of r. w may be
// absent: 1.
//
// Outputs of rmsnorm: y, rstd [rows]. Outputs of add_rmsnorm: r, y, rstd.
#include "program/gradient.h"
#include "program/ops.h"
#include "program/ops/norm_shapes.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

std::vector<Tensor> infer_rmsnorm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_weight(p, op, op.inputs.at(1), x);
  return {{.shape = x}, {.shape = rows_of(x), .full_precision = true}};
}

/// 4 per element: square, sum, normalise, scale.
Cost cost_rmsnorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * p.shape(op.inputs.at(0)).numel()};
}

/// Inputs of the backward op: dy, x, w, rstd [, residual gradient to add]. Outputs: dx, dw, and y with
/// `rebuilds` (passes/rebuild.h).
/// dx = rstd * (dy*w - xhat * mean_C(dy*w*xhat)) with xhat = x*rstd, dw = sum dy*xhat.
void gradient_rmsnorm(GradientContext& g) {
  const NormTargets weights(g, 1);
  const TensorId dx = g.new_gradient(0);
  g.emit_into(kRmsNormBackward, {g.gradient(0), g.input(0), g.input(1), g.output(1)},
              {{"accumulate", weights.accumulate}}, {dx, weights.ids[0]});
  g.propagate(0, dx);
}

std::vector<Tensor> infer_rmsnorm_backward(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(1));
  std::vector<Tensor> outputs{{.shape = x, .role = Role::activation_gradient},
                              {.shape = {x[-1]}, .role = Role::gradient, .full_precision = true}};
  if (op.attrs.flag("rebuilds")) outputs.push_back({.shape = x});
  return outputs;
}

/// A norm backward that adds a residual gradient equals the plain norm backward, then add. One that writes y
/// again is plain: statistics are not outputs of its own.
void plain_rmsnorm_backward(PlainForm& f) {
  constexpr std::size_t kResidual = 4;
  if (!f.has_input(kResidual) || f.op().attrs.flag("rebuilds")) return;
  f.emit(kRmsNormBackward, {f.input(0), f.input(1), f.input(2), f.input(3)}, f.op().attrs,
         {f.output(0), f.output(1)});
  f.emit(kAdd, {f.output(0), f.input(kResidual)}, {}, {f.output(0)});
}

/// 10 per element, 11 with a residual gradient, 1 more for y.
Cost cost_rmsnorm_backward(const Program& p, const Op& op) {
  const int each = (op.inputs.size() > 4 ? 11 : 10) + (op.attrs.flag("rebuilds") ? 1 : 0);
  return {.elementwise_flop = each * p.shape(op.inputs.at(1)).numel()};
}

/// Inputs: x, y, w.
std::vector<Tensor> infer_add_rmsnorm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_weight(p, op, op.inputs.at(2), x);
  return {{.shape = x}, {.shape = x}, {.shape = rows_of(x), .full_precision = true}};
}

void plain_add_rmsnorm(PlainForm& f) {
  f.emit(kAdd, {f.input(0), f.input(1)}, {}, {f.output(0)});
  f.emit(kRmsNorm, {f.output(0), f.input(2)}, f.op().attrs, {f.output(1), f.output(2)});
}

Cost cost_add_rmsnorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 5 * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kRmsNorm{.name = "rmsnorm",
                     .work = Work::norm,
                     .infer = infer_rmsnorm,
                     .cost = cost_rmsnorm,
                     .gradient = gradient_rmsnorm,
                     .cheap_to_recompute = true};
const OpDef kRmsNormBackward{.name = "rmsnorm_backward",
                             .work = Work::norm,
                             .infer = infer_rmsnorm_backward,
                             .cost = cost_rmsnorm_backward,
                             .in_place_input = 0,
                             .plain = plain_rmsnorm_backward};
const OpDef kAddRmsNorm{.name = "add_rmsnorm",
                        .work = Work::norm,
                        .infer = infer_add_rmsnorm,
                        .cost = cost_add_rmsnorm,
                        .plain = plain_add_rmsnorm};

}  // namespace rooflm::program::ops
