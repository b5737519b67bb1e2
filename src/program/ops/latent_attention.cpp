// latent_attention: causal attention whose queries and keys have other sizes than values, or whose values are
// its keys: y [B, T, H Dv]. Inputs: q [B, T, ..], and tensors with the keys and values, in any packing.
// Attributes: heads, qk_dim, v_dim, window (keys that a query sees; absent: all). No backend has a kernel:
// models with it are planned. Costs are those of flash_attention.
//
// Outputs: y, lse [B, H, T].
#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;

std::vector<Tensor> infer_latent_attention(const Program& p, const Op& op) {
  const core::Shape& q = p.shape(op.inputs.at(0));
  const Count heads = op.attrs.integer("heads");
  return {{.shape = q.with(-1, heads * op.attrs.integer("v_dim"))},
          {.shape = {q[0], heads, q[1]}, .full_precision = true}};
}

/// Pairs of queries and keys of one head and text: causal attention counts in full, a window its share.
Count pairs(const core::Shape& q, const Op& op) {
  const std::int64_t window = op.attrs.has("window") ? op.attrs.integer("window") : q[1];
  if (window >= q[1]) return Count(q[1]) * q[1];
  return 2 * Count(window) * q[1] - Count(window) * window;
}

Cost cost_latent_attention(const Program& p, const Op& op) {
  const core::Shape& q = p.shape(op.inputs.at(0));
  const Count all = Count(q[0]) * op.attrs.integer("heads") * pairs(q, op);
  return {.matmul_flop = 2 * all * (Count(op.attrs.integer("qk_dim")) + op.attrs.integer("v_dim")),
          .elementwise_flop = 5 * all};
}

/// Inputs of the backward op: dy, y, lse, then the inputs; outputs: the gradients of the inputs.
void gradient_latent_attention(GradientContext& g) {
  std::vector<TensorId> inputs = {g.gradient(0), g.output(0), g.output(1)};
  std::vector<TensorId> outputs;
  for (std::size_t i = 0; i < g.op().inputs.size(); ++i) {
    inputs.push_back(g.input(i));
    outputs.push_back(g.new_gradient(i));
  }
  g.emit_into(kLatentAttentionBackward, inputs, g.op().attrs, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) g.propagate(i, outputs[i]);
}

std::vector<Tensor> infer_latent_attention_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs;
  for (std::size_t i = 3; i < op.inputs.size(); ++i)
    outputs.push_back({.shape = p.shape(op.inputs[i]), .role = Role::activation_gradient});
  return outputs;
}

/// Four matmuls; the scores again are not counted, as in flash_attention_backward.
Cost cost_latent_attention_backward(const Program& p, const Op& op) {
  const core::Shape& q = p.shape(op.inputs.at(3));
  const Count all = Count(q[0]) * op.attrs.integer("heads") * pairs(q, op);
  const Count qk = op.attrs.integer("qk_dim");
  return {.matmul_flop = 4 * all * (qk + op.attrs.integer("v_dim")), .elementwise_flop = 8 * all};
}

}  // namespace

const OpDef kLatentAttention{.name = "latent_attention",
                             .work = Work::attention,
                             .infer = infer_latent_attention,
                             .cost = cost_latent_attention,
                             .gradient = gradient_latent_attention};
const OpDef kLatentAttentionBackward{.name = "latent_attention_backward",
                                     .work = Work::attention,
                                     .infer = infer_latent_attention_backward,
                                     .cost = cost_latent_attention_backward};

}  // namespace rooflm::program::ops
