// scale_cap: y = factor x or, with cap > 0, y = cap tanh(factor x / cap): multipliers of embeddings,
// residuals and logits, soft caps of logits (Bello et al., 2016). Attributes: factor, cap.
// gate_rows: y[r, c] = sigmoid(gate[r]) * x[r, c]; inputs x [.., C], gate [.., 1].
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;

std::vector<Tensor> infer_scale_cap(const Program& p, const Op& op) {
  expect(op.attrs.number("cap") >= 0, op,
         [&] { return fmt::format("the cap {} is negative", op.attrs.number("cap")); });
  return {{.shape = p.shape(op.inputs.at(0))}};
}

/// 1 per element; with a cap 3, tanh counted as 1.
Cost cost_scale_cap(const Program& p, const Op& op) {
  const int each = op.attrs.number("cap") > 0 ? 3 : 1;
  return {.elementwise_flop = Count(each) * p.shape(op.inputs.at(0)).numel()};
}

/// dx = factor dy, or with t = tanh(factor x / cap) dx = factor dy (1 - t^2): inputs of that op are dy, x.
void gradient_scale_cap(GradientContext& g) {
  const bool has_cap = g.op().attrs.number("cap") > 0;
  const auto& def = has_cap ? kScaleCapBackward : kScaleCap;
  std::vector<TensorId> inputs = {g.gradient(0)};
  if (has_cap) inputs.push_back(g.input(0));
  g.propagate(0, g.emit(def, std::move(inputs), g.op().attrs).at(0));
}

std::vector<Tensor> infer_scale_cap_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(1))}};
}

/// 6 per element, tanh counted as 1.
Cost cost_scale_cap_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = Count(6) * p.shape(op.inputs.at(0)).numel()};
}

std::vector<Tensor> infer_gate_rows(const Program& p, const Op& op) {
  const core::Shape& x = p.shape(op.inputs.at(0));
  const core::Shape& gate = p.shape(op.inputs.at(1));
  expect(gate == x.with(-1, 1), op,
         [&] { return fmt::format("gate {} does not match x {}", gate.str(), x.str()); });
  return {{.shape = x}};
}

/// 1 per element.
Cost cost_gate_rows(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

/// Of dy, x, gate, with s = sigmoid(gate): dx = s dy, dgate[r] = s (1 - s) sum over c of dy[r, c] x[r, c].
void gradient_gate_rows(GradientContext& g) {
  const auto made = g.emit(kGateRowsBackward, {g.gradient(0), g.input(0), g.input(1)}, {});
  g.propagate(0, made.at(0));
  g.propagate(1, made.at(1));
}

std::vector<Tensor> infer_gate_rows_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient},
          {.shape = p.shape(op.inputs.at(2)), .role = Role::activation_gradient}};
}

/// 3 per element.
Cost cost_gate_rows_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = Count(3) * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kScaleCap{.name = "scale_cap",
                      .infer = infer_scale_cap,
                      .cost = cost_scale_cap,
                      .gradient = gradient_scale_cap,
                      .in_place_input = 0,
                      .cheap_to_recompute = true};
const OpDef kScaleCapBackward{.name = "scale_cap_backward",
                              .infer = infer_scale_cap_backward,
                              .cost = cost_scale_cap_backward,
                              .in_place_input = 0};
const OpDef kGateRows{.name = "gate_rows",
                      .infer = infer_gate_rows,
                      .cost = cost_gate_rows,
                      .gradient = gradient_gate_rows,
                      .in_place_input = 0,
                      .cheap_to_recompute = true};
const OpDef kGateRowsBackward{.name = "gate_rows_backward",
                              .infer = infer_gate_rows_backward,
                              .cost = cost_gate_rows_backward,
                              .in_place_input = 0};

}  // namespace rooflm::program::ops
