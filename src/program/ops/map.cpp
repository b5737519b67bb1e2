// map: y = f(x; w..), f elementwise, with any number of small weights: scales and norms that no other op has.
// Which f it is does not matter to a plan, and no backend has a kernel: models with them are planned.
#include "program/gradient.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_map(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}};
}

/// 2 per element and weight, at least one weight.
Cost cost_map(const Program& p, const Op& op) {
  const auto weights = static_cast<std::int64_t>(op.inputs.size() > 1 ? op.inputs.size() - 1 : 1);
  return {.elementwise_flop = 2 * weights * p.shape(op.inputs.at(0)).numel()};
}

/// Inputs of the backward op: dy, x, w..; outputs: dx, dw...
void gradient_map(GradientContext& g) {
  Attributes attrs = g.op().attrs;
  const TensorId dx = g.new_gradient(0);
  std::vector<TensorId> inputs = {g.gradient(0), g.input(0)};
  std::vector<TensorId> outputs = {dx};
  attrs.set("accumulate", false);
  for (std::size_t i = 1; i < g.op().inputs.size(); ++i) {
    const auto dw = g.weight_target(i);
    attrs.set("accumulate", dw.accumulate);
    inputs.push_back(g.input(i));
    outputs.push_back(dw.id);
  }
  g.emit_into(kMapBackward, inputs, attrs, outputs);
  g.propagate(0, dx);
}

std::vector<Tensor> infer_map_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs{{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient}};
  for (std::size_t i = 2; i < op.inputs.size(); ++i)
    outputs.push_back({.shape = p.shape(op.inputs[i]), .role = Role::gradient, .full_precision = true});
  return outputs;
}

/// 4 per element and weight.
Cost cost_map_backward(const Program& p, const Op& op) {
  const auto weights = static_cast<std::int64_t>(op.inputs.size() > 2 ? op.inputs.size() - 2 : 1);
  return {.elementwise_flop = 4 * weights * p.shape(op.inputs.at(1)).numel()};
}

}  // namespace

const OpDef kMap{.name = "map",
                 .infer = infer_map,
                 .cost = cost_map,
                 .gradient = gradient_map,
                 .in_place_input = 0,
                 .cheap_to_recompute = true};
const OpDef kMapBackward{
    .name = "map_backward", .infer = infer_map_backward, .cost = cost_map_backward, .in_place_input = 0};

}  // namespace rooflm::program::ops
