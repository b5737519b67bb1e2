// gelu: y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the tanh form of GPT-2 (Hendrycks and Gimpel,
// 2016).
#include "program/gradient.h"
#include "program/ops.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_gelu(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}};
}

/// 10 per element, tanh counted as 1.
Cost cost_gelu(const Program& p, const Op& op) {
  return {.elementwise_flop = 10 * p.shape(op.inputs.at(0)).numel()};
}

/// dx = dy * gelu'(x); inputs of the backward op: dy, x; outputs: dx, with `bias_gradient` (passes/fuse.h)
/// db[f] (+)= sum over rows of dx[r, f], += with `accumulate`, and with `rebuilds` (passes/rebuild.h) y.
void gradient_gelu(GradientContext& g) {
  g.propagate(0, g.emit(kGeluBackward, {g.gradient(0), g.input(0)}, {}).at(0));
}

std::vector<Tensor> infer_gelu_backward(const Program& p, const Op& op) {
  const core::Shape& shape = p.shape(op.inputs.at(0));
  std::vector<Tensor> outputs{{.shape = shape}};
  if (op.attrs.flag("bias_gradient"))
    outputs.push_back({.shape = {shape[-1]}, .role = Role::gradient, .full_precision = true});
  if (op.attrs.flag("rebuilds")) outputs.push_back({.shape = shape});
  return outputs;
}

/// Equals gelu, the plain gradient, which may overwrite dy, and the sums of its columns.
void plain_gelu_backward(PlainForm& f) {
  const bool rebuilds = f.op().attrs.flag("rebuilds");
  const bool bias = f.op().attrs.flag("bias_gradient");
  if (!rebuilds && !bias) return;
  if (rebuilds) f.emit(kGelu, {f.input(1)}, {}, {f.output(bias ? 2 : 1)});
  f.emit(kGeluBackward, {f.input(0), f.input(1)}, {}, {f.output(0)});
  if (!bias) return;
  f.emit(kBiasBackward, {f.output(0)}, {{"accumulate", f.op().attrs.flag("accumulate")}}, {f.output(1)});
}

/// 18 per element, tanh counted as 1; 1 more for y and 1 for the sum.
Cost cost_gelu_backward(const Program& p, const Op& op) {
  const int each = 18 + (op.attrs.flag("rebuilds") ? 1 : 0) + (op.attrs.flag("bias_gradient") ? 1 : 0);
  return {.elementwise_flop = each * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kGelu{.name = "gelu",
                  .infer = infer_gelu,
                  .cost = cost_gelu,
                  .gradient = gradient_gelu,
                  .in_place_input = 0,
                  .cheap_to_recompute = true};
const OpDef kGeluBackward{.name = "gelu_backward",
                          .infer = infer_gelu_backward,
                          .cost = cost_gelu_backward,
                          .in_place_input = 0,
                          .plain = plain_gelu_backward};

}  // namespace rooflm::program::ops
