// map: y = f(x; w..), f elementwise, with any number of small weights: multipliers, soft caps, biases and
// scales that no other op has, norms of kinds that no kernel has. activate: y = f(h) or, with `gated`, y[r,
// f] = f(h[r, f]) * h[r, F + f]. Which f it is does not matter to a plan, and no backend has a kernel: models
// with them are planned.
#include <fmt/format.h>

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

std::int64_t halves(const Op& op) { return op.attrs.flag("gated") ? 2 : 1; }

std::vector<Tensor> infer_activate(const Program& p, const Op& op) {
  const core::Shape& h = p.shape(op.inputs.at(0));
  expect(h[-1] % halves(op) == 0, op,
         [&] { return fmt::format("expected gate and up in one tensor [.., 2F], got {}", h.str()); });
  return {{.shape = h.with(-1, h[-1] / halves(op))}};
}

/// 10 per output element, and 19 backward: as gelu.
Cost cost_activate(const Program& p, const Op& op) {
  return {.elementwise_flop = 10 * p.shape(op.inputs.at(0)).numel() / halves(op)};
}

/// Inputs of the backward op: dy, h; output dh.
void gradient_activate(GradientContext& g) {
  g.propagate(0, g.emit(kActivateBackward, {g.gradient(0), g.input(0)}, g.op().attrs).at(0));
}

std::vector<Tensor> infer_activate_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(1))}};
}

Cost cost_activate_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 19 * p.shape(op.inputs.at(0)).numel()};
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
const OpDef kActivate{.name = "activate",
                      .infer = infer_activate,
                      .cost = cost_activate,
                      .gradient = gradient_activate,
                      .cheap_to_recompute = true};
const OpDef kActivateBackward{.name = "activate_backward",
                              .infer = infer_activate_backward,
                              .cost = cost_activate_backward,
                              .in_place_input = 1};

}  // namespace rooflm::program::ops
