// Cases of what is between matmuls in other families than GPT-2 and Llama: activations, multipliers and soft
// caps, norms without weights, norms of heads, gates and biases of experts.
#include <string>
#include <utility>
#include <vector>

#include "program/activation.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::Shape;
using program::Activation;
using program::Attributes;
using program::TensorId;

void add_activations(std::vector<Case>& cases, const Sizes& s) {
  for (const auto& [kind, name] : {std::pair(Activation::gelu_tanh, "gelu_tanh"),
                                   {Activation::gelu, "gelu"},
                                   {Activation::silu, "silu"},
                                   {Activation::relu, "relu"},
                                   {Activation::relu2, "relu2"},
                                   {Activation::xielu, "xielu"},
                                   {Activation::clipped_swiglu, "clipped_swiglu"}}) {
    for (const bool is_gated : {false, true}) {
      if (is_gated ? kind == Activation::xielu : kind == Activation::clipped_swiglu) continue;
      CaseWriter w(std::string("activate ") + name + (is_gated ? " gated" : ""));
      std::vector<TensorId> inputs = {w.activation({s.batch, s.seq, (is_gated ? 2 : 1) * s.width})};
      const Attributes attrs{{"kind", static_cast<std::int64_t>(kind)}, {"gated", is_gated}};
      if (kind == Activation::xielu) inputs.push_back(w.weight({2}));
      const TensorId y = w.op(ops::kActivate, inputs, attrs)[0];
      if (kind != Activation::xielu) {
        cases.push_back(w.done({y}));
        continue;
      }
      inputs[0] = y;  // twice, so that the gradient of the weight accumulates
      cases.push_back(w.done({y, w.op(ops::kActivate, inputs, attrs)[0]}));
    }
  }
  CaseWriter far("activate clipped");  // beyond both limits
  const TensorId scaled = far.op(ops::kScaleCap, {far.activation({s.batch, s.seq, 2 * s.width})},
                                 {{"factor", 9.0}, {"cap", 0.0}})[0];
  const Attributes clipped{{"kind", static_cast<std::int64_t>(Activation::clipped_swiglu)}, {"gated", true}};
  cases.push_back(far.done(far.op(ops::kActivate, {scaled}, clipped)));
}

void add_scales(std::vector<Case>& cases, const Sizes& s) {
  const Shape shape{s.batch, s.seq, s.width};
  for (const double cap : {0.0, 0.75}) {
    CaseWriter w(cap > 0 ? "scale_cap capped" : "scale_cap");
    cases.push_back(w.done(w.op(ops::kScaleCap, {w.activation(shape)}, {{"factor", -1.5}, {"cap", cap}})));
  }
  CaseWriter gate("gate_rows");
  cases.push_back(
      gate.done(gate.op(ops::kGateRows, {gate.activation(shape), gate.activation({s.batch, s.seq, 1})})));
}

/// Norms that have no weight, or no bias, behind a residual addition too.
void add_bare_norms(std::vector<Case>& cases, const Sizes& s) {
  const Shape shape{s.batch, s.seq, s.channels};
  const Attributes attrs{{"eps", 1e-5}, {"accumulate", false}};
  constexpr TensorId kAbsent = program::kNone;
  for (const bool has_weight : {false, true}) {
    const std::string suffix = has_weight ? " without bias" : " without weight";
    CaseWriter w("layernorm" + suffix);
    const TensorId scale = has_weight ? w.weight({s.channels}) : kAbsent;
    cases.push_back(w.done({w.op(ops::kLayerNorm, {w.activation(shape), scale, kAbsent}, attrs)[0]}));
    CaseWriter f("layernorm fused" + suffix);
    const TensorId of = has_weight ? f.weight({s.channels}) : kAbsent;
    const auto r = f.op(ops::kAddLayerNorm, {f.activation(shape), f.activation(shape), of, kAbsent}, attrs);
    const auto gradient = [&](TensorId of_tensor) {
      return f.add("d", f.shape(of_tensor), program::Role::gradient, true);
    };
    const TensorId dx = f.add("dx", shape, program::Role::activation_gradient);
    f.op_into(ops::kLayerNormBackward, {f.activation(shape), r[0], of, r[2], r[3], f.activation(shape)},
              attrs, {dx, has_weight ? gradient(of) : kAbsent, kAbsent});
    cases.push_back(f.done());
  }
  CaseWriter w("rmsnorm without weight");
  cases.push_back(w.done({w.op(ops::kRmsNorm, {w.activation(shape), kAbsent}, attrs)[0]}));
  CaseWriter f("rmsnorm fused without weight");
  const auto r = f.op(ops::kAddRmsNorm, {f.activation(shape), f.activation(shape), kAbsent}, attrs);
  const TensorId dx = f.add("dx", shape, program::Role::activation_gradient);
  f.op_into(ops::kRmsNormBackward, {f.activation(shape), r[0], kAbsent, r[2], f.activation(shape)}, attrs,
            {dx, kAbsent});
  cases.push_back(f.done());
}

/// Twice with the same weights, so that their gradients accumulate.
void add_head_norms(std::vector<Case>& cases, const Sizes& s) {
  struct Kind {
    const char* name;
    bool is_whole, is_layer;
    std::int64_t q, k;  // elements of the weights; 0: none
    bool has_biases = false;
  };
  const std::int64_t q = s.heads * s.head_dim;
  const std::int64_t k = s.kv_heads * s.head_dim;
  for (const Kind& kind : {Kind{"head", false, false, s.head_dim, s.head_dim},
                           {"heads layer", false, true, q, k},
                           {"whole", true, false, q, k},
                           {"whole layer", true, true, q, k},
                           {"biases", false, true, s.head_dim, s.head_dim, true},
                           {"unweighted", false, false, 0, 0}}) {
    CaseWriter w(std::string("head_norm ") + kind.name);
    Attributes attrs{{"heads", s.heads},   {"kv_heads", s.kv_heads}, {"head_dim", s.head_dim},
                     {"eps", 1e-5},        {"whole", kind.is_whole}, {"layer", kind.is_layer},
                     {"accumulate", false}};
    std::vector<TensorId> inputs = {w.activation({s.batch, s.seq, q + 2 * k})};
    if (kind.q > 0) inputs.insert(inputs.end(), {w.weight({kind.q}), w.weight({kind.k})});
    if (kind.has_biases) inputs.insert(inputs.end(), {w.weight({kind.q}), w.weight({kind.k})});
    if (kind.has_biases) attrs.set("head_biases", true);
    const TensorId y = w.op(ops::kHeadNorm, inputs, attrs)[0];
    inputs[0] = y;
    cases.push_back(w.done({y, w.op(ops::kHeadNorm, inputs, attrs)[0]}));
  }
}

/// What adapters add to two parts of a projection.
void add_columns(std::vector<Case>& cases, const Sizes& s) {
  CaseWriter w("add_columns");
  const std::int64_t q = s.heads * s.head_dim;
  const std::int64_t k = s.kv_heads * s.head_dim;
  const TensorId x = w.activation({s.batch, s.seq, q + 2 * k});
  const TensorId y = w.op(ops::kAddColumns, {x, w.activation({s.batch * s.seq, q})},
                          {{"at", std::int64_t{0}}, {"n", q}, {"factor", 2.0}})[0];
  const TensorId z = w.op(ops::kAddColumns, {y, w.activation({s.batch * s.seq, k})},
                          {{"at", q + k}, {"n", k}, {"factor", 0.5}})[0];
  cases.push_back(w.done({z}));
}

/// Norms of two parts of a projection, of a matrix and adapters, so that they are of something.
void add_norms_of_adapters(std::vector<Case>& cases, const Sizes& s) {
  CaseWriter w("inverse_norms");
  const std::int64_t rank = 3;
  const std::int64_t q = s.heads * s.head_dim;
  const std::int64_t k = s.kv_heads * s.head_dim;
  const TensorId matrix = w.weight({q + 2 * k, s.channels});
  const TensorId a = w.weight({rank, s.channels});
  const auto product = [&](TensorId of, std::int64_t n) {
    const TensorId result = w.add("products", {rank, n}, program::Role::activation, true);
    w.op_into(ops::kMatmul, {a, of},
              {{"batch", std::int64_t{1}},
               {"m", rank},
               {"n", n},
               {"k", s.channels},
               {"trans_a", false},
               {"trans_b", true},
               {"accumulate", false},
               {"looped", false}},
              {result});
    return result;
  };
  const TensorId products = product(matrix, q + 2 * k);
  const TensorId grams = product(a, rank);
  for (const auto& [at, n] : {std::pair{std::int64_t{0}, q}, std::pair{q + k, k}}) {
    const TensorId squares = w.op(ops::kRowSquares, {matrix}, {{"at", at}, {"n", n}})[0];
    w.op(ops::kInverseNorms, {squares, products, grams, w.weight({n, rank})}, {{"at", at}, {"factor", 0.5}});
  }
  cases.push_back(w.done());
}

/// Magnitudes of two parts of a projection.
void add_magnitudes(std::vector<Case>& cases, const Sizes& s) {
  CaseWriter w("scale_columns");
  const std::int64_t q = s.heads * s.head_dim;
  const std::int64_t k = s.kv_heads * s.head_dim;
  const std::int64_t width = q + 2 * k;
  TensorId scales = program::kNone;
  for (const auto& [at, n] : {std::pair{std::int64_t{0}, q}, std::pair{q + k, k}}) {
    const TensorId norms = w.add("norms", {n}, program::Role::activation, true);
    scales = w.op(ops::kSetScales, {scales, w.weight({n}), norms}, {{"at", at}, {"width", width}})[0];
  }
  cases.push_back(w.done(w.op(ops::kScaleColumns, {w.activation({s.batch, s.seq, width}), scales})));
}

/// Twice; the second of three experts has no rows.
void add_expert_biases(std::vector<Case>& cases, const Sizes& s) {
  CaseWriter w("grouped_bias_add");
  const std::int64_t rows = s.batch * s.seq;
  const TensorId offsets = w.ids({4}, rows + 1);
  w.fix(offsets, {0, number(rows / 3), number(rows / 3), number(rows)});
  const TensorId bias = w.weight({3, s.width});
  const TensorId y = w.op(ops::kGroupedBiasAdd, {w.activation({rows, s.width}), bias, offsets})[0];
  cases.push_back(w.done({y, w.op(ops::kGroupedBiasAdd, {y, bias, offsets})[0]}));
}

}  // namespace

void add_row_cases(std::vector<Case>& cases, const Sizes& s) {
  add_columns(cases, s);
  add_norms_of_adapters(cases, s);
  add_magnitudes(cases, s);
  add_activations(cases, s);
  add_scales(cases, s);
  add_bare_norms(cases, s);
  add_head_norms(cases, s);
  add_expert_biases(cases, s);
}

}  // namespace rooflm::tests
