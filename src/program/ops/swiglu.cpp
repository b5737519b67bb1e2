// swiglu: y[r, f] = silu(h[r, f]) * h[r, F + f], silu(g) = g / (1 + exp(-g)) (Shazeer, 2020). The first half
// of the input is the gate, the second the up-projection: one matmul with packed weights computes both.
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/ops.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_swiglu(const Program& p, const Op& op) {
  const core::Shape& h = p.shape(op.inputs.at(0));
  expect(h[-1] % 2 == 0, op,
         [&] { return fmt::format("expected gate and up in one tensor [.., 2F], got {}", h.str()); });
  return {{.shape = h.with(-1, h[-1] / 2)}};
}

/// 5 per output element, exp counted as 1.
Cost cost_swiglu(const Program& p, const Op& op) {
  return {.elementwise_flop = 5 * p.shape(op.inputs.at(0)).numel() / 2};
}

/// Inputs of the backward op: dy [.., F], h [.., 2F]; outputs dh [.., 2F], and y with `rebuilds`
/// (passes/rebuild.h).
/// d gate = dy * up * s * (1 + gate * (1 - s)), s = sigmoid(gate); d up = dy * silu(gate).
void gradient_swiglu(GradientContext& g) {
  g.propagate(0, g.emit(kSwiGluBackward, {g.gradient(0), g.input(0)}, {}).at(0));
}

std::vector<Tensor> infer_swiglu_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs{{.shape = p.shape(op.inputs.at(1))}};
  if (op.attrs.flag("rebuilds")) outputs.push_back({.shape = p.shape(op.inputs.at(0))});
  return outputs;
}

/// One that writes y again equals swiglu, then the plain gradient, which may overwrite h.
void plain_swiglu_backward(PlainForm& f) {
  if (!f.op().attrs.flag("rebuilds")) return;
  f.emit(kSwiGlu, {f.input(1)}, {}, {f.output(1)});
  f.emit(kSwiGluBackward, {f.input(0), f.input(1)}, {}, {f.output(0)});
}

/// 11 per element of dy, 1 more for y.
Cost cost_swiglu_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = (op.attrs.flag("rebuilds") ? 12 : 11) * p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kSwiGlu{.name = "swiglu",
                    .infer = infer_swiglu,
                    .cost = cost_swiglu,
                    .gradient = gradient_swiglu,
                    .cheap_to_recompute = true};
const OpDef kSwiGluBackward{.name = "swiglu_backward",
                            .infer = infer_swiglu_backward,
                            .cost = cost_swiglu_backward,
                            .in_place_input = 1,
                            .plain = plain_swiglu_backward};

}  // namespace rooflm::program::ops
