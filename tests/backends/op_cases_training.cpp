// The cases at the beginning and the end of a model, and those of the optimizer.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "program/loss_scale.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::Shape;
using program::Attributes;
using program::Role;
using program::TensorId;

/// Weight, gradient and state of one tensor.
struct Parameter {
  TensorId p, g, m, v, copy;
};
Parameter add_parameter(CaseWriter& w, const Shape& shape, bool has_copy) {
  Parameter x{w.weight(shape), w.add("g", shape, Role::gradient, true),
              w.add("m", shape, Role::optimizer_state, true), w.add("v", shape, Role::optimizer_state, true),
              has_copy ? w.copy(shape) : program::kNone};
  std::vector<double> squares;
  for (std::int64_t i = 0; i < shape.numel(); ++i) squares.push_back(0.01 * number(i % 7) + 0.001);
  w.fix(x.v, squares);
  return x;
}

/// What global_norm is made of where its sum comes in parts.
void add_norm_parts(std::vector<Case>& cases, const Sizes& s) {
  CaseWriter sum("square_sum");
  const Parameter a = add_parameter(sum, {s.width, s.channels}, false);
  const Parameter b = add_parameter(sum, {s.channels}, false);
  sum.op(ops::kSquareSum, {a.g, b.g});
  cases.push_back(sum.done());
  CaseWriter root("norm_of_squares");
  const TensorId squares = root.copy({3}, core::DType::f64);
  root.fix(squares, {4, 0.25, 5});
  root.op(ops::kNormOfSquares, {squares});
  cases.push_back(root.done());
}

/// Lion, and what Muon and Shampoo are made of: of two matrices together.
void add_other_optimizers(std::vector<Case>& cases, const Sizes& s, bool clipped) {
  const std::string suffix = clipped ? " clipped" : "";
  const Attributes decays{{"beta1", 0.9},
                          {"beta2", 0.95},
                          {"weight_decay", 0.1},
                          {"max_norm", clipped ? 0.5 : 0.0},
                          {"copies", false}};
  {
    CaseWriter w("lion" + suffix);
    const Parameter a = add_parameter(w, {s.width, s.channels}, false);
    const Parameter b = add_parameter(w, {s.channels}, false);
    const TensorId hyper = w.add("hyper", {4}, Role::input, true);
    w.fix(hyper, {0.01, 0.19, 0.05, 0});
    const TensorId norm = clipped ? w.op(ops::kGlobalNorm, {a.g, b.g})[0] : program::kNone;
    w.op_into(ops::kLion, {hyper, norm, a.p, a.g, a.m, b.p, b.g, b.m}, decays, {a.p, a.m, b.p, b.m});
    cases.push_back(w.done());
  }
  {
    CaseWriter w("adamw_8bit" + suffix);
    const std::vector<Shape> shapes = {{s.width, s.channels}, {s.channels}};
    const Parameter parameters[] = {add_parameter(w, shapes[0], false), add_parameter(w, shapes[1], false)};
    const TensorId hyper = w.add("hyper", {4}, Role::input, true);
    w.fix(hyper, {0.01, 0.19, 0.05, 0});
    const TensorId norm =
        clipped ? w.op(ops::kGlobalNorm, {parameters[0].g, parameters[1].g})[0] : program::kNone;
    std::vector<TensorId> inputs{hyper, norm}, outputs;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      inputs.insert(inputs.end(), {parameters[i].p, parameters[i].g});
      outputs.push_back(parameters[i].p);
      const std::int64_t elements = shapes[i].numel();
      for (int moment = 0; moment < 2; ++moment) {
        const TensorId codes = w.ids({(elements + 3) / 4}, 1 << 30);
        const TensorId sizes = w.add("absmax", {(elements + 255) / 256}, Role::optimizer_state, true);
        w.fix(sizes, std::vector<double>(static_cast<std::size_t>((elements + 255) / 256), 0.25));
        inputs.insert(inputs.end(), {codes, sizes});
        outputs.insert(outputs.end(), {codes, sizes});
      }
    }
    Attributes attrs = decays;
    attrs.set("eps", 1e-8);
    w.op_into(ops::kAdamW8Bit, inputs, attrs, outputs);
    cases.push_back(w.done());
  }
  for (const bool nesterov : {true, false}) {
    CaseWriter w(std::string("momentum") + (nesterov ? " nesterov" : " squared") + suffix);
    const Parameter a = add_parameter(w, {s.width, s.channels}, false);
    const Parameter b = add_parameter(w, {s.width, s.channels}, false);
    const TensorId hyper = w.add("hyper", {4}, Role::input, true);
    w.fix(hyper, {0.01, 0.19, 0.05, 0});
    const TensorId norm = clipped ? w.op(ops::kGlobalNorm, {a.g, b.g})[0] : program::kNone;
    const TensorId direction = w.activation({2, s.width, s.channels});
    w.op_into(
        ops::kMomentum, {hyper, norm, a.g, a.m, b.g, b.m},
        {{"beta", 0.95}, {"max_norm", clipped ? 0.5 : 0.0}, {"nesterov", nesterov}, {"squared", !nesterov}},
        {direction, a.m, b.m});
    w.op(ops::kNormalize, {direction}, {{"size", 3.0}, {"eps", 1e-7}});
    cases.push_back(w.done());
  }
  CaseWriter w("matrix_polynomial" + suffix);
  const TensorId a = w.activation({3, s.channels, s.channels});
  const Attributes factors{{"a", 2.0}, {"b", -0.5}, {"c", 0.25}};
  w.op(ops::kMatrixPolynomial, {w.op(ops::kMatrixPolynomial, {a}, factors)[0], w.activation(w.shape(a))},
       factors);
  cases.push_back(w.done());
}

}  // namespace

void add_token_cases(std::vector<Case>& cases, const Sizes& s) {
  const Shape ids{s.batch, s.seq};
  {
    CaseWriter w("embedding tied");  // more tokens than words: rows repeat
    const TensorId table = w.weight({s.vocab, s.channels});
    const TensorId x = w.op(ops::kEmbedding, {w.ids(ids, s.vocab), table})[0];
    const TensorId y = w.op(ops::kEmbedding, {w.ids(ids, s.vocab), table})[0];
    cases.push_back(w.done({x, y}));
  }
  {
    CaseWriter w("add_positions tied");
    const TensorId positions = w.weight({s.seq + 2, s.channels});
    const TensorId x = w.op(ops::kAddPositions, {w.activation({s.batch, s.seq, s.channels}), positions})[0];
    cases.push_back(w.done({x, w.op(ops::kAddPositions, {x, positions})[0]}));
  }
  {
    CaseWriter w("add_positions offset");
    cases.push_back(w.done(w.op(
        ops::kAddPositions, {w.activation({s.batch, s.seq, s.channels}), w.weight({s.seq + 4, s.channels})},
        {{"offset", std::int64_t{2}}})));
  }
  {
    CaseWriter w("embedding_positions");
    w.op(ops::kEmbeddingPositions,
         {w.ids(ids, s.vocab), w.weight({s.vocab, s.channels}), w.weight({s.seq + 2, s.channels})});
    cases.push_back(w.done());
  }
  {
    CaseWriter w("cross_entropy");
    const std::int64_t rows = s.batch * s.seq;
    const Attributes attrs{{"rows", rows}, {"valid", s.vocab}, {"grad_scale", 1 / number(rows)}};
    const TensorId logits = w.activation({rows, s.padded_vocab});
    const TensorId losses = w.op(ops::kCrossEntropy, {logits, w.ids({rows}, s.vocab)}, attrs)[0];
    cases.push_back(w.done({losses}));
    CaseWriter both("cross_entropy_with_gradient");
    both.op(ops::kCrossEntropyWithGradient,
            {both.activation({rows, s.padded_vocab}), both.ids({rows}, s.vocab)}, attrs);
    cases.push_back(both.done());
  }
  {
    CaseWriter w("cross_entropy scaled");
    const std::int64_t rows = s.batch * s.seq;
    const Attributes attrs{{"rows", rows}, {"valid", s.vocab}, {"grad_scale", 1 / number(rows)}};
    const TensorId logits = w.activation({rows, s.padded_vocab});
    const TensorId targets = w.ids({rows}, s.vocab);
    const TensorId lse = w.add("lse", {rows}, Role::activation, true);
    const TensorId state = w.add("loss_scale", {program::kLossScaleState}, Role::optimizer_state, true);
    w.fix(state, {-12, 5, 1});  // 2^4
    w.op(ops::kCrossEntropyBackward, {logits, targets, lse, state}, attrs);
    w.op(ops::kCrossEntropyWithGradient, {logits, targets, state}, attrs);
    cases.push_back(w.done());
    CaseWriter both("cross_entropy_with_gradient scaled");
    const TensorId all_logits = both.activation({rows, s.padded_vocab});
    const TensorId all_targets = both.ids({rows}, s.vocab);
    const TensorId scale = both.add("loss_scale", {program::kLossScaleState}, Role::optimizer_state, true);
    both.fix(scale, {-12, 5, 1});
    both.op(ops::kCrossEntropyWithGradient, {all_logits, all_targets, scale}, attrs);
    cases.push_back(both.done());
  }
  {
    CaseWriter w("mean");
    const TensorId losses = w.add("losses", {s.batch * s.seq}, Role::activation, true);
    const TensorId loss = w.op(ops::kMean, {losses}, {{"weight", 0.25}, {"accumulate", false}})[0];
    w.op_into(ops::kMean, {losses}, {{"weight", 0.5}, {"accumulate", true}}, {loss});
    cases.push_back(w.done());
  }
}

/// The norm of scaled gradients and what becomes of a state that is about to grow, of one in the middle, and
/// of one whose gradients were not finite; then the update of one tensor.
void add_loss_scale_cases(std::vector<Case>& cases, const Sizes& s) {
  for (const auto& [name, good, gradient] : {std::tuple{"loss_scale", 7.0, 3.0},
                                             {"loss_scale grows", program::kUpdatesUntilGrowth - 1.0, 3.0},
                                             {"loss_scale skips", 7.0, HUGE_VAL}}) {
    for (const bool adamw : {true, false}) {
      CaseWriter w(std::string(name) + (adamw ? " adamw" : " sgd"));
      Parameter a = add_parameter(w, {s.width, s.channels}, false);
      a.copy = w.copy({s.width, s.channels}, core::DType::f16);
      w.fix(a.copy,
            std::vector<double>(static_cast<std::size_t>(s.width * s.channels), 0.5));  // kept when skipped
      std::vector<double> gradients(static_cast<std::size_t>(s.width * s.channels), 2.5);
      gradients.at(3) = gradient;
      w.fix(a.g, gradients);
      const TensorId hyper = w.add("hyper", {4}, Role::input, true);
      w.fix(hyper, {0.01, 0.19, 0.05, 0});
      const TensorId state = w.add("loss_scale", {program::kLossScaleState}, Role::optimizer_state, true);
      w.fix(state, {-9, good, 1});
      const TensorId norm = w.op(ops::kGlobalNorm, {a.g})[0];
      const TensorId scaled = w.add("scaled_hyper", {4}, Role::activation, true);
      const TensorId true_norm = w.add("grad_norm", {1}, Role::result, true);
      w.op_into(ops::kLossScale, {hyper, norm, state}, {}, {scaled, true_norm, state});
      Attributes attrs{{"weight_decay", 0.1}, {"max_norm", 0.5}, {"copies", true}, {"scaled", true}};
      if (adamw) {
        attrs.set("beta1", 0.9);
        attrs.set("beta2", 0.95);
        attrs.set("eps", 1e-8);
        w.op_into(ops::kAdamW, {scaled, true_norm, a.p, a.g, a.m, a.v}, attrs, {a.p, a.m, a.v, a.copy});
      } else {
        w.op_into(ops::kSgd, {scaled, true_norm, a.p, a.g}, attrs, {a.p, a.copy});
      }
      cases.push_back(w.done());
    }
  }
}

/// Two tensors per update; with a bf16 copy of the first.
void add_optimizer_cases(std::vector<Case>& cases, const Sizes& s, bool clipped, bool copies) {
  const std::string suffix = std::string(clipped ? " clipped" : "") + (copies ? " copies" : "");
  for (const bool adamw : {true, false}) {
    CaseWriter w((adamw ? "adamw" : "sgd") + suffix);
    const Parameter a = add_parameter(w, {s.width, s.channels}, copies);
    const Parameter b = add_parameter(w, {s.channels}, false);
    const TensorId hyper = w.add("hyper", {4}, Role::input, true);
    w.fix(hyper, {0.01, 0.19, 0.05, 0});
    const TensorId norm = clipped ? w.op(ops::kGlobalNorm, {a.g, b.g})[0] : program::kNone;
    Attributes attrs{{"weight_decay", 0.1}, {"max_norm", clipped ? 0.5 : 0.0}, {"copies", copies}};
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
  if (clipped) add_norm_parts(cases, s);
  add_other_optimizers(cases, s, clipped);
}

}  // namespace rooflm::tests
