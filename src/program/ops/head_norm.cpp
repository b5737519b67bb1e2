// head_norm: RMSNorm of each query and key head of a packed projection qkv [B, T, (H + 2K) D] with weights wq
// and wk [D] (Qwen3); v passes through. With `whole` weights are [H D] and [K D], and the norms are over all
// heads (OLMo 2). Attributes: heads, kv_heads, head_dim, eps. No backend has a kernel yet: models with it are
// planned.
//
// Outputs: y [B, T, (H + 2K) D], rstd [B T (H + K)].
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

/// Heads of queries and keys.
Count normed_heads(const Op& op) { return Count(op.attrs.integer("heads")) + op.attrs.integer("kv_heads"); }

Count elements(const Program& p, const Op& op, std::size_t qkv) {
  const Shape& x = p.shape(op.inputs.at(qkv));
  return Count(x[0]) * x[1] * normed_heads(op) * op.attrs.integer("head_dim");
}

std::vector<Tensor> infer_head_norm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Count d = op.attrs.integer("head_dim");
  const std::int64_t width = (normed_heads(op) + op.attrs.integer("kv_heads")) * d;
  expect(x.rank() == 3 && x[2] == width, op,
         [&] { return fmt::format("expected [B, T, {}], got {}", width, x.str()); });
  const bool is_whole = op.attrs.flag("whole");
  const auto check = [&](std::size_t weight, std::int64_t elements) {
    expect(p.shape(op.inputs.at(weight)) == Shape{elements}, op,
           [&] { return fmt::format("expected a weight [{}]", elements); });
  };
  check(1, is_whole ? d * op.attrs.integer("heads") : d);
  check(2, is_whole ? d * op.attrs.integer("kv_heads") : d);
  return {{.shape = x}, {.shape = {Count(x[0]) * x[1] * normed_heads(op)}, .full_precision = true}};
}

/// As rmsnorm: 4 per element of a query or key, and 10 backward.
Cost cost_head_norm(const Program& p, const Op& op) { return {.elementwise_flop = 4 * elements(p, op, 0)}; }
Cost cost_head_norm_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 10 * elements(p, op, 1)};
}

/// Inputs of the backward op: dy, qkv, wq, wk, rstd. Outputs: dqkv, dwq, dwk.
void gradient_head_norm(GradientContext& g) {
  const auto dwq = g.weight_target(1);
  const auto dwk = g.weight_target(2);
  Attributes attrs = g.op().attrs;
  attrs.set("accumulate", dwq.accumulate);
  const TensorId dqkv = g.new_gradient(0);
  g.emit_into(kHeadNormBackward, {g.gradient(0), g.input(0), g.input(1), g.input(2), g.output(1)}, attrs,
              {dqkv, dwq.id, dwk.id});
  g.propagate(0, dqkv);
}

std::vector<Tensor> infer_head_norm_backward(const Program& p, const Op& op) {
  const auto of_weight = [&](std::size_t i) {
    return Tensor{.shape = p.shape(op.inputs.at(i)), .role = Role::gradient, .full_precision = true};
  };
  return {{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient}, of_weight(2), of_weight(3)};
}

}  // namespace

const OpDef kHeadNorm{.name = "head_norm",
                      .work = Work::norm,
                      .infer = infer_head_norm,
                      .cost = cost_head_norm,
                      .gradient = gradient_head_norm,
                      .cheap_to_recompute = true};
const OpDef kHeadNormBackward{.name = "head_norm_backward",
                              .work = Work::norm,
                              .infer = infer_head_norm_backward,
                              .cost = cost_head_norm_backward,
                              .in_place_input = 0};

}  // namespace rooflm::program::ops
