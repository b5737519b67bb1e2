// activate: y = f(h) or, with `gated`, y[r, f] = f(h[r, f]) * h[r, F + f], of the kinds of
// program/activation.h. gelu and swiglu are two of them with fused forms of their own.
// Inputs: h, of xielu also its weights [2]. Attributes: kind, gated.
#include <fmt/format.h>

#include "program/activation.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::int64_t halves(const Op& op) { return op.attrs.flag("gated") ? 2 : 1; }

std::vector<Tensor> infer_activate(const Program& p, const Op& op) {
  const core::Shape& h = p.shape(op.inputs.at(0));
  expect(h[-1] % halves(op) == 0, op,
         [&] { return fmt::format("expected gate and up in one tensor [.., 2F], got {}", h.str()); });
  const auto kind = static_cast<Activation>(op.attrs.integer("kind"));
  const bool is_gated = op.attrs.flag("gated");
  expect(kind != Activation::clipped_swiglu || is_gated, op, [] { return "clipped SwiGLU has a gate"; });
  const bool is_weighted = kind == Activation::xielu;
  expect(!is_weighted || !is_gated, op, [] { return "xIELU has no gate"; });
  expect(!is_weighted || (op.inputs.size() == 2 && p.shape(op.inputs[1]) == core::Shape{2}), op,
         [] { return "xIELU has a weight [2]"; });
  return {{.shape = h.with(-1, h[-1] / halves(op))}};
}

/// 10 per output element, and 19 backward: as gelu.
Cost cost_activate(const Program& p, const Op& op) {
  return {.elementwise_flop = 10 * p.shape(op.inputs.at(0)).numel() / halves(op)};
}

/// Inputs of the backward op: dy, h [, weights]; outputs: dh [, dweights].
void gradient_activate(GradientContext& g) {
  if (g.op().inputs.size() < 2)
    return g.propagate(0, g.emit(kActivateBackward, {g.gradient(0), g.input(0)}, g.op().attrs).at(0));
  const auto dw = g.weight_target(1);
  Attributes attrs = g.op().attrs;
  attrs.set("accumulate", dw.accumulate);
  const TensorId dh = g.new_gradient(0);
  g.emit_into(kActivateBackward, {g.gradient(0), g.input(0), g.input(1)}, attrs, {dh, dw.id});
  g.propagate(0, dh);
}

std::vector<Tensor> infer_activate_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs{{.shape = p.shape(op.inputs.at(1))}};
  if (op.inputs.size() > 2)
    outputs.push_back({.shape = p.shape(op.inputs[2]), .role = Role::gradient, .full_precision = true});
  return outputs;
}

Cost cost_activate_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 19 * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

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
