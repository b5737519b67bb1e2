// attention: causal self-attention on packed projections qkv [B, T, (H + 2K) D] -> y [B, T, H D],
// y = softmax(q k^T / sqrt(D)) v per head; query head h uses key/value head h / (H/K).
// Models emit `attention`. The lowering pass replaces it by matmuls or by `flash_attention` (Dao et al.,
// 2022), which never materialises T x T. Attributes: heads, kv_heads, head_dim; for flash_attention also tf32
// (fp32 operands may be rounded to TF32). Optional (program/scores.h): window, cap, scale, alibi,
// slopes, chunk, temperature and floor, and a last input sinks [H], a score of each head that attends to
// nothing.
#include <fmt/format.h>

#include <algorithm>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/ops/sinks.h"
#include "program/scores.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

std::vector<Tensor> infer_attention(const Program& p, const Op& op) {
  const Shape& qkv = p.shape(op.inputs.at(0));
  const std::int64_t h = op.attrs.integer("heads");
  const std::int64_t k = op.attrs.integer("kv_heads");
  const core::Count d = op.attrs.integer("head_dim");
  expect(k > 0 && h % k == 0, op,
         [&] { return fmt::format("{} key/value heads do not divide {} heads", k, h); });
  const std::int64_t width = (h + 2 * core::Count(k)) * d;
  expect(qkv.rank() == 3 && qkv[2] == width, op,
         [&] { return fmt::format("expected [B, T, {}], got {}", width, qkv.str()); });
  expect(!op.attrs.has("window") || op.attrs.integer("window") > 0, op,
         [&] { return fmt::format("a window of {} tokens", op.attrs.integer("window")); });
  expect_sinks(p, op, h);
  return {{.shape = {qkv[0], qkv[1], h * d}}};
}

/// Outputs: y, and the log-sum-exp of each row of scores, lse [B, H, T].
std::vector<Tensor> infer_flash(const Program& p, const Op& op) {
  auto outputs = infer_attention(p, op);
  const Shape& qkv = p.shape(op.inputs.at(0));
  outputs.push_back({.shape = {qkv[0], op.attrs.integer("heads"), qkv[1]}, .full_precision = true});
  return outputs;
}

/// B*H*T*T scores; with chunks those within each, with a window twice those within it, so that a window of T
/// changes nothing.
core::Count scores(const Program& p, const Op& op, std::size_t qkv) {
  const Shape& x = p.shape(op.inputs.at(qkv));
  if (op.attrs.has("chunk")) {
    const core::Count chunk = op.attrs.integer("chunk");
    const std::int64_t rest = x[1] % op.attrs.integer("chunk");
    return core::Count(x[0]) * op.attrs.integer("heads") * (chunk * (x[1] - rest) + core::Count(rest) * rest);
  }
  const core::Count seen = op.attrs.has("window") ? std::min(op.attrs.integer("window"), x[1]) : x[1];
  const core::Count rows = core::Count(x[0]) * op.attrs.integer("heads");
  return rows * (2 * seen * x[1] - seen * seen);
}

/// Two matmuls of 2D FLOP per score, counted in full although the causal kernel skips half, and 5 elementwise
/// FLOP per score.
Cost cost_attention(const Program& p, const Op& op) {
  const core::Count s = scores(p, op, 0);
  return {.matmul_flop = 4 * s * op.attrs.integer("head_dim"), .elementwise_flop = 5 * s};
}

/// Inputs of the backward op: dy, qkv, y, lse [, sinks]. Outputs: dqkv [, dsinks, with `accumulate` added
/// to].
void gradient_flash(GradientContext& g) {
  std::vector<TensorId> inputs = {g.gradient(0), g.input(0), g.output(0), g.output(1)};
  if (g.input(1) == kNone) return g.propagate(0, g.emit(kFlashAttentionBackward, inputs, g.op().attrs).at(0));
  inputs.push_back(g.input(1));
  const TensorId dqkv = g.new_gradient(0);
  emit_with_sinks(g, 1, kFlashAttentionBackward, inputs, dqkv);
  g.propagate(0, dqkv);
}

std::vector<Tensor> infer_flash_backward(const Program& p, const Op& op) {
  std::vector<Tensor> outputs = {{.shape = p.shape(op.inputs.at(1))}};
  add_gradient_of_sinks(p, op, outputs);
  return outputs;
}

/// Four matmuls (dv, dp, dq, dk) count as model FLOP. The fifth, which rebuilds the scores, is recomputation
/// and does not count (PaLM, appendix B).
Cost cost_flash_backward(const Program& p, const Op& op) {
  const core::Count s = scores(p, op, 1);
  return {.matmul_flop = 8 * s * op.attrs.integer("head_dim"), .elementwise_flop = 8 * s};
}

}  // namespace

const OpDef kAttention{
    .name = "attention", .work = Work::attention, .infer = infer_attention, .cost = cost_attention};
const OpDef kFlashAttention{.name = "flash_attention",
                            .work = Work::attention,
                            .infer = infer_flash,
                            .cost = cost_attention,
                            .gradient = gradient_flash};
const OpDef kFlashAttentionBackward{.name = "flash_attention_backward",
                                    .work = Work::attention,
                                    .infer = infer_flash_backward,
                                    .cost = cost_flash_backward};

}  // namespace rooflm::program::ops
