// head_norm: norms of the query and key heads of a packed projection qkv [B, T, (H + 2K) D]; v passes
// through. RMSNorm as in rmsnorm or, with `layer`, LayerNorm. Of each head with weights wq and
// wk [D] that heads share (Qwen3) or of their own, [H D] and [K D] (Cohere); without weights (Llama 4); with
// `whole`, over all heads of the queries and all of the keys, with weights [H D] and [K D] (OLMo 2).
// Attributes: heads, kv_heads, head_dim, eps, whole, layer. With the flag head_biases two more inputs, bq and
// bk like wq and wk, are added (Persimmon).
//
// Outputs: y [B, T, (H + 2K) D], statistics [2, B, T, G]: mean (0 unless `layer`) and 1 / sqrt(variance +
// eps) of each of the G = H + K heads, or G = 2 with `whole`.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

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

bool has_weights(const Op& op, std::size_t first) {
  return op.inputs.size() > first && op.inputs[first] != kNone;
}

std::vector<Tensor> infer_head_norm(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Count d = op.attrs.integer("head_dim");
  const std::int64_t width = (normed_heads(op) + op.attrs.integer("kv_heads")) * d;
  expect(x.rank() == 3 && x[2] == width, op,
         [&] { return fmt::format("expected [B, T, {}], got {}", width, x.str()); });
  const bool is_whole = op.attrs.flag("whole");
  const auto check = [&](std::size_t weight, const char* heads) {
    const Shape& of = p.shape(op.inputs.at(weight));
    const std::int64_t all = d * op.attrs.integer(heads);
    expect(of == Shape{all} || (!is_whole && of == Shape{d}), op,
           [&] { return fmt::format("weight {} for {} elements", of.str(), all); });
  };
  if (has_weights(op, 1)) {
    check(1, "heads");
    check(2, "kv_heads");
  }
  for (const std::size_t bias : {3U, 4U}) {
    if (op.attrs.flag("head_biases")) check(bias, bias == 3 ? "heads" : "kv_heads");
  }
  const std::int64_t groups = is_whole ? Count(2) : normed_heads(op);
  return {{.shape = x}, {.shape = {2, x[0], x[1], groups}, .full_precision = true}};
}

/// As rmsnorm: 4 per element of a query or key, and 10 backward; as layernorm 6 and 13.
Cost cost_head_norm(const Program& p, const Op& op) {
  return {.elementwise_flop = (op.attrs.flag("layer") ? 6 : 4) * elements(p, op, 0)};
}
Cost cost_head_norm_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = (op.attrs.flag("layer") ? 13 : 10) * elements(p, op, 1)};
}

/// Inputs of the backward op: dy, qkv, statistics [, wq, wk [, bq, bk]]. Outputs: dqkv [, dwq, dwk [, dbq,
/// dbk]].
void gradient_head_norm(GradientContext& g) {
  Attributes attrs = g.op().attrs;
  const TensorId dqkv = g.new_gradient(0);
  std::vector<TensorId> inputs = {g.gradient(0), g.input(0), g.output(1)};
  std::vector<TensorId> outputs = {dqkv};
  if (has_weights(g.op(), 1)) {
    for (std::size_t weight = 1; weight < g.op().inputs.size(); ++weight) {
      const auto target = g.weight_target(weight);
      attrs.set("accumulate", target.accumulate);
      inputs.push_back(g.input(weight));
      outputs.push_back(target.id);
    }
  }
  g.emit_into(kHeadNormBackward, std::move(inputs), attrs, std::move(outputs));
  g.propagate(0, dqkv);
}

std::vector<Tensor> infer_head_norm_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs{{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient}};
  for (std::size_t i = 3; i < op.inputs.size(); ++i)
    outputs.push_back({.shape = p.shape(op.inputs[i]), .role = Role::gradient, .full_precision = true});
  return outputs;
}

}  // namespace

const OpDef kHeadNorm{.name = "head_norm",
                      .work = Work::norm,
                      .infer = infer_head_norm,
                      .cost = cost_head_norm,
                      .gradient = gradient_head_norm,
                      .in_place_input = 0,
                      .cheap_to_recompute = true};
const OpDef kHeadNormBackward{.name = "head_norm_backward",
                              .work = Work::norm,
                              .infer = infer_head_norm_backward,
                              .cost = cost_head_norm_backward,
                              .in_place_input = 0};

}  // namespace rooflm::program::ops
