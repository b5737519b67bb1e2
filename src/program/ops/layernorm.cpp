// layernorm: y = (x - mean) * rstd * w + b over the last dimension C, rstd = 1 / sqrt(var + eps)
// (Ba et al., 2016; biased variance). add_layernorm: r = x + y first, then the norm of r. w and b may be
// absent: 1 and 0.
//
// Outputs of layernorm: y, mean [rows], rstd [rows]. Outputs of add_layernorm: r, y, mean, rstd.
#include "program/gradient.h"
#include "program/ops.h"
#include "program/ops/norm_shapes.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

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

/// Inputs of the backward op: dy, x, w, mean, rstd [, residual gradient to add [, b]]. Outputs: dx, dw, db,
/// with `bias_gradient` (passes/fuse.h) the sums of dx over rows, and y with `rebuilds` (passes/rebuild.h).
/// dx = rstd * (dy*w - mean_C(dy*w) - xhat * mean_C(dy*w*xhat)), dw = sum dy*xhat, db = sum dy.
void gradient_layernorm(GradientContext& g) {
  const NormTargets weights(g, 2);
  const TensorId dx = g.new_gradient(0);
  g.emit_into(kLayerNormBackward, {g.gradient(0), g.input(0), g.input(1), g.output(1), g.output(2)},
              {{"accumulate", weights.accumulate}}, {dx, weights.ids[0], weights.ids[1]});
  g.propagate(0, dx);
}

std::vector<Tensor> infer_layernorm_backward(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(1));
  const Tensor weight{.shape = {x[-1]}, .role = Role::gradient, .full_precision = true};
  std::vector<Tensor> outputs{{.shape = x, .role = Role::activation_gradient}, weight, weight};
  if (op.attrs.flag("bias_gradient")) outputs.push_back(weight);
  if (op.attrs.flag("rebuilds")) outputs.push_back({.shape = x});
  return outputs;
}

/// A norm backward that sums the columns of dx equals one that does not, then their sum; one that adds a
/// residual gradient the plain norm backward, then add. One that writes y again is plain: statistics are not
/// outputs of its own.
void plain_layernorm_backward(PlainForm& f) {
  constexpr std::size_t kResidual = 5;
  constexpr std::size_t kSums = 3;
  if (f.op().attrs.flag("bias_gradient")) {
    Op norm = f.op();
    norm.attrs.set("bias_gradient", false);
    norm.outputs.erase(norm.outputs.begin() + kSums);
    f.emit(std::move(norm));
    f.emit(kBiasBackward, {f.output(0)}, {{"accumulate", f.op().attrs.flag("accumulate")}},
           {f.output(kSums)});
    return;
  }
  if (!f.has_input(kResidual) || f.op().attrs.flag("rebuilds")) return;
  f.emit(kLayerNormBackward, {f.input(0), f.input(1), f.input(2), f.input(3), f.input(4)}, f.op().attrs,
         {f.output(0), f.output(1), f.output(2)});
  f.emit(kAdd, {f.output(0), f.input(kResidual)}, {}, {f.output(0)});
}

/// 14 per element, 15 with a residual gradient, 1 more for the sums and 2 for y.
Cost cost_layernorm_backward(const Program& p, const Op& op) {
  const int each = (op.inputs.size() > 5 ? 15 : 14) + (op.attrs.flag("bias_gradient") ? 1 : 0) +
                   (op.attrs.flag("rebuilds") ? 2 : 0);
  return {.elementwise_flop = each * p.shape(op.inputs.at(1)).numel()};
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

void plain_add_layernorm(PlainForm& f) {
  f.emit(kAdd, {f.input(0), f.input(1)}, {}, {f.output(0)});
  f.emit(kLayerNorm, {f.output(0), f.input(2), f.input(3)}, f.op().attrs,
         {f.output(1), f.output(2), f.output(3)});
}

Cost cost_add_layernorm(const Program& p, const Op& op) {
  return {.elementwise_flop = 8 * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kLayerNorm{.name = "layernorm",
                       .work = Work::norm,
                       .infer = infer_layernorm,
                       .cost = cost_layernorm,
                       .gradient = gradient_layernorm,
                       .cheap_to_recompute = true};
const OpDef kLayerNormBackward{.name = "layernorm_backward",
                               .work = Work::norm,
                               .infer = infer_layernorm_backward,
                               .cost = cost_layernorm_backward,
                               .in_place_input = 0,
                               .plain = plain_layernorm_backward};
const OpDef kAddLayerNorm{.name = "add_layernorm",
                          .work = Work::norm,
                          .infer = infer_add_layernorm,
                          .cost = cost_add_layernorm,
                          .plain = plain_add_layernorm};

}  // namespace rooflm::program::ops
