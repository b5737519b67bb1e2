// latent_attention: causal attention whose queries and keys have another size than values (DeepSeek-V2,
// 2024): y [B, T, H Dv] = softmax(scale q k^T) v per head. Inputs: q [B, T, H Dqk]; kv [B, T, H (P + Dv)], of
// each head P elements of its key and its value; rotary [B, T, Dqk - P], the rest of the key, which heads
// share. Attributes: heads, qk_dim, v_dim, scale (absent: 1 / sqrt(Dqk)). Costs are those of flash_attention.
// Outputs: y, lse [B, H, T].
// With other inputs (one more that chooses keys, or q packed with keys that are the values), and with a
// window, no backend has a kernel: such models are planned.
#include <fmt/format.h>

#include <cstddef>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;

std::vector<Tensor> infer_latent_attention(const Program& p, const Op& op) {
  const core::Shape& q = p.shape(op.inputs.at(0));
  const Count heads = op.attrs.integer("heads");
  constexpr std::size_t kComputed = 3;
  if (op.inputs.size() == kComputed) {
    const Count key = p.shape(op.inputs[2])[-1];
    const Count width = heads * (op.attrs.integer("qk_dim") - key + op.attrs.integer("v_dim"));
    const bool fits = q.rank() == 3 && q[2] == heads * op.attrs.integer("qk_dim") &&
                      p.shape(op.inputs[1]) == q.with(-1, width) && p.shape(op.inputs[2]) == q.with(-1, key);
    expect(fits, op, [&] {
      return fmt::format("expected queries [B, T, {}] and keys and values [B, T, {}], got {} and {}",
                         std::int64_t{heads * op.attrs.integer("qk_dim")}, std::int64_t{width}, q.str(),
                         p.shape(op.inputs[1]).str());
    });
  }
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
