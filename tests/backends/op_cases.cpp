// Every op in small programs.
#include "tests/backends/op_cases.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "compile/passes/cast.h"
#include "compile/passes/differentiate.h"
#include "program/ops.h"
#include "program/rotary.h"
#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::Shape;
using program::Attributes;
using program::TensorId;

Attributes matmul(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool trans_b,
                  bool looped = false) {
  return {
      {"batch", batch},      {"m", m},          {"n", n}, {"k", k}, {"trans_a", false}, {"trans_b", trans_b},
      {"accumulate", false}, {"looped", looped}};
}

Attributes heads_of(const Sizes& s, bool grouped) {
  return {{"heads", s.heads}, {"kv_heads", grouped ? s.kv_heads : s.heads}, {"head_dim", s.head_dim}};
}
std::int64_t packed_width(const Sizes& s, bool grouped) {
  return (s.heads + 2 * (grouped ? s.kv_heads : s.heads)) * s.head_dim;
}

/// y = x W^T as a linear layer, and y = x W.
void add_linear(std::vector<Case>& cases, const Sizes& s) {
  for (const bool trans_b : {true, false}) {
    CaseWriter w(trans_b ? "matmul x W^T" : "matmul x W");
    const TensorId x = w.activation({s.batch * s.seq, s.channels});
    const TensorId weight = w.weight(trans_b ? Shape{s.width, s.channels} : Shape{s.channels, s.width});
    cases.push_back(
        w.done(w.op(ops::kMatmul, {x, weight}, matmul(1, s.batch * s.seq, s.width, s.channels, trans_b))));
  }
  CaseWriter w("matmul tied");  // two matmuls with one weight: gradients accumulate, also in x
  const TensorId x = w.activation({s.batch * s.seq, s.channels});
  const TensorId weight = w.weight({s.channels, s.channels});
  const auto attrs = matmul(1, s.batch * s.seq, s.channels, s.channels, true);
  const TensorId y = w.op(ops::kMatmul, {x, weight}, attrs)[0];
  const TensorId z = w.op(ops::kMatmul, {y, weight}, attrs)[0];
  cases.push_back(w.done({y, z}));
  CaseWriter b("matmul bias");
  const TensorId xb = b.activation({s.batch * s.seq, s.channels});
  const TensorId wb = b.weight({s.width, s.channels});
  const TensorId bias = b.weight({s.width});
  b.op(ops::kMatmul, {xb, wb, bias}, matmul(1, s.batch * s.seq, s.width, s.channels, true));
  cases.push_back(b.done());
  CaseWriter f("matmul gelu");
  const TensorId xf = f.activation({s.batch * s.seq, s.channels});
  const TensorId wf = f.weight({s.width, s.channels});
  f.op(ops::kMatmulGelu, {xf, wf, f.weight({s.width})},
       matmul(1, s.batch * s.seq, s.width, s.channels, true));
  cases.push_back(f.done());
  CaseWriter g("matmul gelu_backward");
  const TensorId dy = g.activation({s.batch * s.seq, s.channels});
  const TensorId wg = g.weight({s.channels, s.width});
  const TensorId xg = g.activation({s.batch * s.seq, s.width});
  g.op(ops::kMatmulGeluBackward, {dy, wg, xg}, matmul(1, s.batch * s.seq, s.width, s.channels, false));
  cases.push_back(g.done());
}

/// Scores and their use as in attention: queries of a group stand together.
void add_batched(std::vector<Case>& cases, const Sizes& s) {
  for (const bool looped : {false, true}) {
    CaseWriter w(looped ? "attention matmuls looped" : "attention matmuls batched");
    const std::int64_t batch = s.batch * s.kv_heads;
    const std::int64_t rows = s.heads / s.kv_heads * s.seq;
    const TensorId q = w.activation({s.batch, s.heads, s.seq, s.head_dim});
    const TensorId k = w.activation({s.batch, s.kv_heads, s.seq, s.head_dim});
    const TensorId v = w.activation({s.batch, s.kv_heads, s.seq, s.head_dim});
    const TensorId scores =
        w.op(ops::kMatmul, {q, k}, matmul(batch, rows, s.seq, s.head_dim, true, looped))[0];
    const TensorId y =
        w.op(ops::kMatmul, {scores, v}, matmul(batch, rows, s.head_dim, s.seq, false, looped))[0];
    cases.push_back(w.done({y}));
    CaseWriter m(looped ? "causal_softmax looped" : "causal_softmax");
    const TensorId x = m.activation({s.batch, s.heads, s.seq, s.seq});
    const Attributes attrs{
        {"scale", 1 / std::sqrt(number(s.head_dim))}, {"looped", looped}, {"batch", s.batch * s.kv_heads}};
    cases.push_back(m.done(m.op(ops::kCausalSoftmax, {x}, attrs)));
  }
}

/// A rope op that scales its frequencies in each way (program/rotary.h), with numbers that change some of
/// them at these lengths.
std::vector<std::pair<std::string, Attributes>> scaled_rotary() {
  const auto scaling = [](program::RotaryScaling kind) {
    return Attributes{{"scaling", static_cast<std::int64_t>(kind)},
                      {"factor", 4.0},
                      {"low", 0.3},
                      {"high", 1.5},
                      {"original", 16.0},
                      {"beta_fast", 2.0},
                      {"beta_slow", 0.1},
                      {"truncate", false},
                      {"amplitude", 1.125}};
  };
  using enum program::RotaryScaling;
  return {{"linear", scaling(linear)}, {"llama3", scaling(llama3)}, {"yarn", scaling(yarn)}};
}

void add_heads(std::vector<Case>& cases, const Sizes& s) {
  for (const bool grouped : {false, true}) {
    const std::string suffix = grouped ? " grouped" : "";
    const Attributes heads = heads_of(s, grouped);
    const Shape packed{s.batch, s.seq, packed_width(s, grouped)};
    CaseWriter split("split_heads" + suffix);
    cases.push_back(split.done(split.op(ops::kSplitHeads, {split.activation(packed)}, heads)));
    CaseWriter flash("flash_attention" + suffix);
    cases.push_back(flash.done({flash.op(ops::kFlashAttention, {flash.activation(packed)}, heads)[0]}));
    CaseWriter rope("rope" + suffix);
    Attributes attrs = heads;
    attrs.set("theta", 10000.0);
    attrs.set("inverse", false);
    cases.push_back(rope.done(rope.op(ops::kRope, {rope.activation(packed)}, attrs)));
    for (const auto& [name, scaling] : scaled_rotary()) {
      CaseWriter scaled("rope " + name + suffix);
      Attributes with = attrs;
      for (const auto& [key, value] : scaling.entries()) with.set(key, value);
      cases.push_back(scaled.done(scaled.op(ops::kRope, {scaled.activation(packed)}, with)));
    }
  }
  CaseWriter merge("merge_heads");
  const TensorId y = merge.activation({s.batch, s.heads, s.seq, s.head_dim});
  cases.push_back(merge.done(merge.op(ops::kMergeHeads, {y}, heads_of(s, false))));
}

void add_norms(std::vector<Case>& cases, const Sizes& s) {
  const Shape shape{s.batch, s.seq, s.channels};
  const Attributes attrs{{"eps", 1e-5}, {"accumulate", false}};
  {
    CaseWriter w("layernorm tied");
    const TensorId scale = w.weight({s.channels});
    const TensorId shift = w.weight({s.channels});
    const TensorId y = w.op(ops::kLayerNorm, {w.activation(shape), scale, shift}, attrs)[0];
    const TensorId z = w.op(ops::kLayerNorm, {y, scale, shift}, attrs)[0];
    cases.push_back(w.done({y, z}));
  }
  {
    CaseWriter w("rmsnorm tied");
    const TensorId scale = w.weight({s.channels});
    const TensorId y = w.op(ops::kRmsNorm, {w.activation(shape), scale}, attrs)[0];
    const TensorId z = w.op(ops::kRmsNorm, {y, scale}, attrs)[0];
    cases.push_back(w.done({y, z}));
  }
  {
    CaseWriter w("layernorm fused");
    const TensorId scale = w.weight({s.channels});
    const auto r = w.op(ops::kAddLayerNorm,
                        {w.activation(shape), w.activation(shape), scale, w.weight({s.channels})}, attrs);
    w.op(ops::kLayerNormBackward, {w.activation(shape), r[0], scale, r[2], r[3], w.activation(shape)}, attrs);
    cases.push_back(w.done());
  }
  Attributes again = attrs;
  again.set("rebuilds", true);
  {
    CaseWriter w("layernorm rebuilt");
    const TensorId scale = w.weight({s.channels});
    const TensorId shift = w.weight({s.channels});
    const TensorId x = w.activation(shape);
    const auto r = w.op(ops::kLayerNorm, {x, scale, shift}, attrs);
    w.op(ops::kLayerNormBackward, {w.activation(shape), x, scale, r[1], r[2], w.activation(shape), shift},
         again);
    cases.push_back(w.done());
  }
  for (const bool rebuilds : {false, true}) {
    CaseWriter w(rebuilds ? "layernorm with bias rebuilt" : "layernorm with bias");
    const TensorId scale = w.weight({s.channels});
    const TensorId shift = w.weight({s.channels});
    const TensorId x = w.activation(shape);
    const auto r = w.op(ops::kLayerNorm, {x, scale, shift}, attrs);
    Attributes with_bias = rebuilds ? again : attrs;
    with_bias.set("bias_gradient", true);
    std::vector<TensorId> inputs{w.activation(shape), x, scale, r[1], r[2], w.activation(shape)};
    if (rebuilds) inputs.push_back(shift);
    w.op(ops::kLayerNormBackward, inputs, with_bias);
    cases.push_back(w.done());
  }
  {
    CaseWriter w("rmsnorm rebuilt");
    const TensorId scale = w.weight({s.channels});
    const TensorId x = w.activation(shape);
    const auto r = w.op(ops::kRmsNorm, {x, scale}, attrs);
    w.op(ops::kRmsNormBackward, {w.activation(shape), x, scale, r[1], w.activation(shape)}, again);
    cases.push_back(w.done());
  }
  {
    CaseWriter w("rmsnorm fused");
    const TensorId scale = w.weight({s.channels});
    const auto r = w.op(ops::kAddRmsNorm, {w.activation(shape), w.activation(shape), scale}, attrs);
    w.op(ops::kRmsNormBackward, {w.activation(shape), r[0], scale, r[2], w.activation(shape)}, attrs);
    cases.push_back(w.done());
  }
}

void add_elementwise(std::vector<Case>& cases, const Sizes& s) {
  const Shape shape{s.batch, s.seq, s.width};
  CaseWriter gelu("gelu");
  cases.push_back(gelu.done(gelu.op(ops::kGelu, {gelu.activation(shape)})));
  CaseWriter swiglu("swiglu");
  cases.push_back(swiglu.done(swiglu.op(ops::kSwiGlu, {swiglu.activation({s.batch, s.seq, 2 * s.width})})));
  const Attributes again{{"rebuilds", true}};
  CaseWriter gelu_again("gelu rebuilt");
  gelu_again.op(ops::kGeluBackward, {gelu_again.activation(shape), gelu_again.activation(shape)}, again);
  cases.push_back(gelu_again.done());
  for (const bool rebuilds : {false, true}) {
    CaseWriter w(rebuilds ? "gelu with bias rebuilt" : "gelu with bias");
    Attributes attrs{{"bias_gradient", true}, {"accumulate", false}};
    if (rebuilds) attrs.set("rebuilds", true);
    w.op(ops::kGeluBackward, {w.activation(shape), w.activation(shape)}, attrs);
    cases.push_back(w.done());
  }
  CaseWriter swiglu_again("swiglu rebuilt");
  swiglu_again.op(ops::kSwiGluBackward,
                  {swiglu_again.activation(shape), swiglu_again.activation({s.batch, s.seq, 2 * s.width})},
                  again);
  cases.push_back(swiglu_again.done());
  CaseWriter add("add");  // x + x + y: a tensor that is used twice
  const TensorId x = add.activation(shape);
  const TensorId twice = add.op(ops::kAdd, {x, x})[0];
  cases.push_back(add.done(add.op(ops::kAdd, {twice, add.activation(shape)})));
  CaseWriter bias("bias_add tied");
  const TensorId b = bias.weight({s.width});
  const TensorId once = bias.op(ops::kBiasAdd, {bias.activation(shape), b})[0];
  cases.push_back(bias.done({once, bias.op(ops::kBiasAdd, {once, b})[0]}));
  CaseWriter cast("cast");
  cast.op(ops::kCast, {cast.weight({s.width, s.channels})});
  cases.push_back(cast.done());
}

}  // namespace

std::vector<Case> all_cases(const Sizes& sizes) {
  std::vector<Case> cases;
  add_linear(cases, sizes);
  add_batched(cases, sizes);
  add_heads(cases, sizes);
  add_norms(cases, sizes);
  add_elementwise(cases, sizes);
  add_token_cases(cases, sizes);
  add_loss_scale_cases(cases, sizes);
  add_optimizer_cases(cases, sizes, false, false);
  add_optimizer_cases(cases, sizes, true, true);
  add_fp8_cases(cases, sizes);
  add_cache_cases(cases, sizes);
  add_attention_cases(cases, sizes);
  add_expert_cases(cases, sizes);
  add_row_cases(cases, sizes);
  return cases;
}

Case find_case(const Sizes& sizes, const std::string& name) {
  for (Case& c : all_cases(sizes)) {
    if (c.name == name) return std::move(c);
  }
  throw std::out_of_range("no case named " + name);
}

CompactUpdate compact_update(const std::string& optimizer, core::DType dtype) {
  Case plain = find_case(kTypical, optimizer + " clipped copies");
  passes::cast(plain.program, dtype);
  const program::Op& update = plain.program.ops.back();
  const TensorId weight = update.inputs[2];
  const TensorId gradient = update.inputs[3];
  const TensorId copy = update.outputs[update.is(ops::kAdamW) ? 6 : 2];
  for (const TensorId id : update.outputs) {  // copies are bf16 in the case
    if (id == program::kNone) continue;
    program::Tensor& output = plain.program.tensor(id);
    if (core::size_of(output.dtype) == 2) output.dtype = dtype;
  }
  std::vector<double> values;
  for (std::int64_t i = 0; i < plain.program.shape(gradient).numel(); ++i) {
    values.push_back(static_cast<double>(i % 61 - 30) / 32);
  }
  plain.values[gradient] = values;
  Case compact = plain;
  compact.program.tensor(weight).halves = dtype;
  compact.program.tensor(copy).view_of = weight;
  compact.program.tensor(gradient).dtype = dtype;
  return {.plain = std::move(plain), .compact = std::move(compact)};
}

std::map<TensorId, TensorId> append_backward(Case& c) {
  program::GradientMap gradients;
  for (const TensorId id : c.outputs) {
    const program::Tensor& output = c.program.tensor(id);
    program::Tensor projection{.name = "d_" + output.name,
                               .shape = output.shape,
                               .role = program::Role::activation_gradient,
                               .full_precision = output.full_precision};
    gradients.set(id, c.program.add_tensor(std::move(projection)));
  }
  const auto projections = gradients;
  for (const program::Op& op : c.program.ops) {
    if (!op.is(ops::kCrossEntropy)) continue;
    const auto rows = static_cast<std::size_t>(op.attrs.integer("rows"));
    c.values[gradients.of(op.outputs[0])] = std::vector<double>(rows, op.attrs.number("grad_scale"));
  }
  passes::differentiate(c.program, 0, gradients);
  std::map<TensorId, TensorId> all;
  for (TensorId id = 0; id < static_cast<TensorId>(c.program.tensors.size()); ++id) {
    const bool is_output = projections.of(id) != program::kNone;
    const TensorId gradient = (is_output ? projections : gradients).of(id);
    if (gradient != program::kNone) all[id] = gradient;
  }
  return all;
}

}  // namespace rooflm::tests
