// Every op in small programs.
#include "tests/backends/op_cases.h"

#include <cmath>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "passes/differentiate.h"
#include "program/builder.h"
#include "program/ops.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::Shape;
using program::Attributes;
using program::OpDef;
using program::Role;
using program::TensorId;

double number(std::int64_t x) { return static_cast<double>(x); }

/// Writes one case.
class Writer {
 public:
  explicit Writer(std::string name) { case_.name = std::move(name); }

  TensorId activation(const Shape& shape) { return add("x", shape, Role::activation); }
  TensorId weight(const Shape& shape) { return add("w", shape, Role::weight, true); }
  TensorId ids(const Shape& shape, std::int64_t limit) {
    const TensorId id = case_.program.add_tensor(
        {.name = "ids", .shape = shape, .dtype = core::DType::i32, .role = Role::input});
    case_.id_limits[id] = limit;
    return id;
  }
  TensorId add(const char* name, const Shape& shape, Role role, bool full_precision = false) {
    return case_.program.add_tensor(
        {.name = name, .shape = shape, .role = role, .full_precision = full_precision});
  }
  TensorId copy(const Shape& shape) {
    return case_.program.add_tensor({.name = "copy", .shape = shape, .dtype = core::DType::bf16});
  }
  void fix(TensorId id, std::vector<double> values) { case_.values[id] = std::move(values); }

  std::vector<TensorId> op(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs = {}) {
    program::Builder b(case_.program);
    return b.ops(def, std::move(inputs), std::move(attrs), std::string(def.name));
  }
  void op_into(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
               std::vector<TensorId> outputs) {
    program::Builder b(case_.program);
    b.op_into(def, std::move(inputs), std::move(attrs), std::move(outputs));
  }
  /// The case, whose loss depends on these outputs.
  Case done(std::vector<TensorId> outputs = {}) {
    case_.outputs = std::move(outputs);
    return std::move(case_);
  }

 private:
  Case case_;
};

Attributes product(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool trans_b,
                   bool looped = false) {
  return {{"batch", number(batch)}, {"m", number(m)},
          {"n", number(n)},         {"k", number(k)},
          {"trans_a", 0},           {"trans_b", trans_b ? 1.0 : 0.0},
          {"accumulate", 0},        {"looped", looped ? 1.0 : 0.0}};
}

Attributes heads_of(const Sizes& s, bool grouped) {
  return {{"heads", number(s.heads)},
          {"kv_heads", number(grouped ? s.kv_heads : s.heads)},
          {"head_dim", number(s.head_dim)}};
}
std::int64_t packed_width(const Sizes& s, bool grouped) {
  return (s.heads + 2 * (grouped ? s.kv_heads : s.heads)) * s.head_dim;
}

/// y = x W^T as a linear layer, and y = x W.
void add_linear(std::vector<Case>& cases, const Sizes& s) {
  for (const bool trans_b : {true, false}) {
    Writer w(trans_b ? "matmul x W^T" : "matmul x W");
    const TensorId x = w.activation({s.batch * s.seq, s.channels});
    const TensorId weight = w.weight(trans_b ? Shape{s.width, s.channels} : Shape{s.channels, s.width});
    cases.push_back(
        w.done(w.op(ops::kMatmul, {x, weight}, product(1, s.batch * s.seq, s.width, s.channels, trans_b))));
  }
  Writer w("matmul tied");  // two products with one weight: gradients accumulate, also in x
  const TensorId x = w.activation({s.batch * s.seq, s.channels});
  const TensorId weight = w.weight({s.channels, s.channels});
  const auto attrs = product(1, s.batch * s.seq, s.channels, s.channels, true);
  const TensorId y = w.op(ops::kMatmul, {x, weight}, attrs)[0];
  const TensorId z = w.op(ops::kMatmul, {y, weight}, attrs)[0];
  cases.push_back(w.done({y, z}));
  Writer b("matmul bias");
  const TensorId xb = b.activation({s.batch * s.seq, s.channels});
  const TensorId wb = b.weight({s.width, s.channels});
  const TensorId bias = b.weight({s.width});
  b.op(ops::kMatmul, {xb, wb, bias}, product(1, s.batch * s.seq, s.width, s.channels, true));
  cases.push_back(b.done());
}

/// Scores and their use as in attention: queries of a group stand together.
void add_batched(std::vector<Case>& cases, const Sizes& s) {
  for (const bool looped : {false, true}) {
    Writer w(looped ? "attention products looped" : "attention products batched");
    const std::int64_t batch = s.batch * s.kv_heads;
    const std::int64_t rows = s.heads / s.kv_heads * s.seq;
    const TensorId q = w.activation({s.batch, s.heads, s.seq, s.head_dim});
    const TensorId k = w.activation({s.batch, s.kv_heads, s.seq, s.head_dim});
    const TensorId v = w.activation({s.batch, s.kv_heads, s.seq, s.head_dim});
    const TensorId scores =
        w.op(ops::kMatmul, {q, k}, product(batch, rows, s.seq, s.head_dim, true, looped))[0];
    const TensorId y =
        w.op(ops::kMatmul, {scores, v}, product(batch, rows, s.head_dim, s.seq, false, looped))[0];
    cases.push_back(w.done({y}));
    Writer m(looped ? "causal_softmax looped" : "causal_softmax");
    const TensorId x = m.activation({s.batch, s.heads, s.seq, s.seq});
    const Attributes attrs{{"scale", 1 / std::sqrt(number(s.head_dim))},
                           {"looped", looped ? 1.0 : 0.0},
                           {"batch", number(s.batch * s.kv_heads)}};
    cases.push_back(m.done(m.op(ops::kCausalSoftmax, {x}, attrs)));
  }
}

void add_heads(std::vector<Case>& cases, const Sizes& s) {
  for (const bool grouped : {false, true}) {
    const std::string suffix = grouped ? " grouped" : "";
    const Attributes heads = heads_of(s, grouped);
    const Shape packed{s.batch, s.seq, packed_width(s, grouped)};
    Writer split("split_heads" + suffix);
    cases.push_back(split.done(split.op(ops::kSplitHeads, {split.activation(packed)}, heads)));
    Writer flash("flash_attention" + suffix);
    cases.push_back(flash.done({flash.op(ops::kFlashAttention, {flash.activation(packed)}, heads)[0]}));
    Writer rope("rope" + suffix);
    Attributes attrs = heads;
    attrs.set("theta", 10000);
    attrs.set("inverse", 0);
    cases.push_back(rope.done(rope.op(ops::kRope, {rope.activation(packed)}, attrs)));
  }
  Writer merge("merge_heads");
  const TensorId y = merge.activation({s.batch, s.heads, s.seq, s.head_dim});
  cases.push_back(merge.done(merge.op(ops::kMergeHeads, {y}, heads_of(s, false))));
}

void add_norms(std::vector<Case>& cases, const Sizes& s) {
  const Shape shape{s.batch, s.seq, s.channels};
  const Attributes attrs{{"eps", 1e-5}, {"accumulate", 0}};
  {
    Writer w("layernorm tied");
    const TensorId scale = w.weight({s.channels});
    const TensorId shift = w.weight({s.channels});
    const TensorId y = w.op(ops::kLayerNorm, {w.activation(shape), scale, shift}, attrs)[0];
    const TensorId z = w.op(ops::kLayerNorm, {y, scale, shift}, attrs)[0];
    cases.push_back(w.done({y, z}));
  }
  {
    Writer w("rmsnorm tied");
    const TensorId scale = w.weight({s.channels});
    const TensorId y = w.op(ops::kRmsNorm, {w.activation(shape), scale}, attrs)[0];
    const TensorId z = w.op(ops::kRmsNorm, {y, scale}, attrs)[0];
    cases.push_back(w.done({y, z}));
  }
  {
    Writer w("layernorm fused");
    const TensorId scale = w.weight({s.channels});
    const auto r = w.op(ops::kAddLayerNorm,
                        {w.activation(shape), w.activation(shape), scale, w.weight({s.channels})}, attrs);
    w.op(ops::kLayerNormBackward, {w.activation(shape), r[0], scale, r[2], r[3], w.activation(shape)}, attrs);
    cases.push_back(w.done());
  }
  {
    Writer w("rmsnorm fused");
    const TensorId scale = w.weight({s.channels});
    const auto r = w.op(ops::kAddRmsNorm, {w.activation(shape), w.activation(shape), scale}, attrs);
    w.op(ops::kRmsNormBackward, {w.activation(shape), r[0], scale, r[2], w.activation(shape)}, attrs);
    cases.push_back(w.done());
  }
}

void add_elementwise(std::vector<Case>& cases, const Sizes& s) {
  const Shape shape{s.batch, s.seq, s.width};
  Writer gelu("gelu");
  cases.push_back(gelu.done(gelu.op(ops::kGelu, {gelu.activation(shape)})));
  Writer swiglu("swiglu");
  cases.push_back(swiglu.done(swiglu.op(ops::kSwiGlu, {swiglu.activation({s.batch, s.seq, 2 * s.width})})));
  Writer add("add");  // x + x + y: a tensor that is used twice
  const TensorId x = add.activation(shape);
  const TensorId twice = add.op(ops::kAdd, {x, x})[0];
  cases.push_back(add.done(add.op(ops::kAdd, {twice, add.activation(shape)})));
  Writer bias("bias_add tied");
  const TensorId b = bias.weight({s.width});
  const TensorId once = bias.op(ops::kBiasAdd, {bias.activation(shape), b})[0];
  cases.push_back(bias.done({once, bias.op(ops::kBiasAdd, {once, b})[0]}));
  Writer cast("cast");
  cast.op(ops::kCast, {cast.weight({s.width, s.channels})});
  cases.push_back(cast.done());
}

void add_tokens(std::vector<Case>& cases, const Sizes& s) {
  const Shape ids{s.batch, s.seq};
  {
    Writer w("embedding tied");  // more tokens than words: rows repeat
    const TensorId table = w.weight({s.vocab, s.channels});
    const TensorId x = w.op(ops::kEmbedding, {w.ids(ids, s.vocab), table})[0];
    const TensorId y = w.op(ops::kEmbedding, {w.ids(ids, s.vocab), table})[0];
    cases.push_back(w.done({x, y}));
  }
  {
    Writer w("add_positions tied");
    const TensorId positions = w.weight({s.seq + 2, s.channels});
    const TensorId x = w.op(ops::kAddPositions, {w.activation({s.batch, s.seq, s.channels}), positions})[0];
    cases.push_back(w.done({x, w.op(ops::kAddPositions, {x, positions})[0]}));
  }
  {
    Writer w("embedding_positions");
    w.op(ops::kEmbeddingPositions,
         {w.ids(ids, s.vocab), w.weight({s.vocab, s.channels}), w.weight({s.seq + 2, s.channels})});
    cases.push_back(w.done());
  }
  {
    Writer w("cross_entropy");
    const std::int64_t rows = s.batch * s.seq;
    const Attributes attrs{
        {"rows", number(rows)}, {"valid", number(s.vocab)}, {"grad_scale", 1 / number(rows)}};
    const TensorId logits = w.activation({rows, s.padded_vocab});
    const TensorId losses = w.op(ops::kCrossEntropy, {logits, w.ids({rows}, s.vocab)}, attrs)[0];
    cases.push_back(w.done({losses}));
  }
  {
    Writer w("mean");
    const TensorId losses = w.add("losses", {s.batch * s.seq}, Role::activation, true);
    const TensorId loss = w.op(ops::kMean, {losses}, {{"weight", 0.25}, {"accumulate", 0}})[0];
    w.op_into(ops::kMean, {losses}, {{"weight", 0.5}, {"accumulate", 1}}, {loss});
    cases.push_back(w.done());
  }
}

/// Weight, gradient and state of one tensor.
struct Parameter {
  TensorId p, g, m, v, copy;
};
Parameter add_parameter(Writer& w, const Shape& shape, bool has_copy) {
  Parameter x{w.weight(shape), w.add("g", shape, Role::gradient, true),
              w.add("m", shape, Role::optimizer_state, true), w.add("v", shape, Role::optimizer_state, true),
              has_copy ? w.copy(shape) : program::kNone};
  std::vector<double> squares;
  for (std::int64_t i = 0; i < shape.numel(); ++i) squares.push_back(0.01 * number(i % 7) + 0.001);
  w.fix(x.v, squares);
  return x;
}

/// Two tensors per update; with a bf16 copy of the first.
void add_optimizer(std::vector<Case>& cases, const Sizes& s, bool clipped, bool copies) {
  const std::string suffix = std::string(clipped ? " clipped" : "") + (copies ? " copies" : "");
  for (const bool adamw : {true, false}) {
    Writer w((adamw ? "adamw" : "sgd") + suffix);
    const Parameter a = add_parameter(w, {s.width, s.channels}, copies);
    const Parameter b = add_parameter(w, {s.channels}, false);
    const TensorId hyper = w.add("hyper", {4}, Role::input, true);
    w.fix(hyper, {0.01, 0.19, 0.05, 0});
    const TensorId norm = clipped ? w.op(ops::kGlobalNorm, {a.g, b.g})[0] : program::kNone;
    Attributes attrs{
        {"weight_decay", 0.1}, {"max_norm", clipped ? 0.5 : 0.0}, {"copies", copies ? 1.0 : 0.0}};
    std::vector<TensorId> outputs;
    if (adamw) {
      attrs.set("beta1", 0.9);
      attrs.set("beta2", 0.95);
      attrs.set("eps", 1e-8);
      outputs = {a.p, a.m, a.v, b.p, b.m, b.v};
    } else {
      outputs = {a.p, b.p};
    }
    if (copies) outputs.insert(outputs.end(), {a.copy, b.copy});
    if (adamw) {
      w.op_into(ops::kAdamW, {hyper, norm, a.p, a.g, a.m, a.v, b.p, b.g, b.m, b.v}, attrs, outputs);
    } else {
      w.op_into(ops::kSgd, {hyper, norm, a.p, a.g, b.p, b.g}, attrs, outputs);
    }
    cases.push_back(w.done());
  }
}

}  // namespace

std::vector<Case> all_cases(const Sizes& sizes) {
  std::vector<Case> cases;
  add_linear(cases, sizes);
  add_batched(cases, sizes);
  add_heads(cases, sizes);
  add_norms(cases, sizes);
  add_elementwise(cases, sizes);
  add_tokens(cases, sizes);
  add_optimizer(cases, sizes, false, false);
  add_optimizer(cases, sizes, true, true);
  return cases;
}

Case find_case(const Sizes& sizes, const std::string& name) {
  for (Case& c : all_cases(sizes)) {
    if (c.name == name) return std::move(c);
  }
  throw std::out_of_range("no case named " + name);
}

std::map<TensorId, TensorId> append_backward(Case& c) {
  program::GradientMap gradients;
  for (const TensorId id : c.outputs) {
    const program::Tensor& output = c.program.tensor(id);
    program::Tensor projection{.name = "d_" + output.name,
                               .shape = output.shape,
                               .role = Role::activation_gradient,
                               .full_precision = output.full_precision};
    gradients[id] = c.program.add_tensor(std::move(projection));
  }
  const auto projections = gradients;
  for (const program::Op& op : c.program.ops) {
    if (!op.is(ops::kCrossEntropy)) continue;
    const auto rows = static_cast<std::size_t>(op.attrs.integer("rows"));
    c.values[gradients.at(op.outputs[0])] = std::vector<double>(rows, op.attrs.number("grad_scale"));
  }
  passes::differentiate(c.program, 0, gradients);
  std::map<TensorId, TensorId> all(gradients.begin(), gradients.end());
  for (const auto& [output, projection] : projections) all[output] = projection;
  return all;
}

}  // namespace rooflm::tests
