// embedding: x[b, t, :] = wte[tokens[b, t], :]. If the table is a part of the vocabulary, the attribute
// `first` is the token of its first row (compile/passes/part_ops.h). add_positions: y[b, t, :] = x[b, t, :] +
// wpe[t, :]. On a context-parallel rank (program/pieces.h) t is the position in the whole sequence. The
// attribute `offset` is the number of rows of wpe before that of position 0 (OPT). When generation continues
// a text, a further input `first` [B] int32 gives the position: row t takes wpe[first[b] + t, :].
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/ops/per_text.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

core::Count element_bytes(const Program& p, TensorId id) {
  return static_cast<std::int64_t>(core::size_of(p.tensor(id).dtype));
}

std::vector<Tensor> infer_embedding(const Program& p, const Op& op) {
  const Shape& tokens = p.shape(op.inputs.at(0));
  const Shape& table = p.shape(op.inputs.at(1));
  expect(tokens.rank() == 2 && table.rank() == 2, op, [&] {
    return fmt::format("expected tokens [B, T] and a table [V, C], got {} and {}", tokens.str(), table.str());
  });
  return {{.shape = {tokens[0], tokens[1], table[1]}}};
}

/// A gather: no arithmetic. Reads one row per token.
Cost cost_embedding(const Program& p, const Op& op) {
  const Tensor& tokens = p.tensor(op.inputs.at(0));
  const core::Count row = p.shape(op.inputs.at(1))[1] * element_bytes(p, op.inputs[1]);
  return {.bytes_read = tokens.bytes() + tokens.shape.numel() * row,
          .bytes_written = p.tensor(op.outputs.at(0)).bytes()};
}

/// dwte[tokens[b, t], :] (+)= dx[b, t, :]
void gradient_embedding(GradientContext& g) {
  const auto target = g.weight_target(1);
  Attributes attrs{{"vocab", g.program().shape(g.input(1))[0]}, {"accumulate", target.accumulate}};
  if (g.op().attrs.has("first")) attrs.set("first", g.op().attrs.integer("first"));
  g.emit_into(kEmbeddingBackward, {g.input(0), g.gradient(0)}, attrs, {target.id});
}

std::vector<Tensor> infer_embedding_backward(const Program& p, const Op& op) {
  return {{.shape = {op.attrs.integer("vocab"), p.shape(op.inputs.at(1))[-1]},
           .role = Role::gradient,
           .full_precision = true}};
}

/// One addition per element of dx. Without `accumulate` the whole table is zeroed first.
Cost cost_embedding_backward(const Program& p, const Op& op) {
  const Tensor& dx = p.tensor(op.inputs.at(1));
  const Tensor& table = p.tensor(op.outputs.at(0));
  const core::Count rows_bytes = dx.shape.numel() * element_bytes(p, op.outputs[0]);
  const bool accumulate = op.attrs.flag("accumulate");
  return {.elementwise_flop = dx.shape.numel(),
          .bytes_read = p.tensor(op.inputs.at(0)).bytes() + dx.bytes() + rows_bytes,
          .bytes_written = rows_bytes + (accumulate ? 0 : table.bytes())};
}

std::int64_t offset_of(const Op& op) { return op.attrs.has("offset") ? op.attrs.integer("offset") : 0; }

std::vector<Tensor> infer_add_positions(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Shape& wpe = p.shape(op.inputs.at(1));
  const std::int64_t least = offset_of(op) + x[1];
  expect(least <= wpe[0] && x[2] == wpe[1], op, [&] {
    return fmt::format("x {} needs positions [>= {}, {}], got {}", x.str(), least, x[2], wpe.str());
  });
  if (op.inputs.size() > 2) expect_per_text(p, op, 2, x[0]);
  return {{.shape = x}};
}

/// Bytes of the rows of wpe that are read: T rows, or T rows per text if each has its own positions.
core::Count position_bytes(const Program& p, const Op& op, std::size_t wpe) {
  const Shape& x = p.shape(op.outputs.at(0));
  const std::int64_t texts = op.inputs.size() > wpe + 1 ? x[0] : 1;
  return element_bytes(p, op.inputs.at(wpe)) * texts * x[1] * x[2];
}

/// One addition per element.
Cost cost_add_positions(const Program& p, const Op& op) {
  const Tensor& x = p.tensor(op.inputs.at(0));
  return {.elementwise_flop = x.shape.numel(),
          .bytes_read = position_bytes(p, op, 1) + x.bytes(),
          .bytes_written = p.tensor(op.outputs.at(0)).bytes()};
}

/// dwpe[t, :] (+)= sum over b of dy[b, t, :]; other rows are zero.
void gradient_add_positions(GradientContext& g) {
  g.propagate(0, g.gradient(0));
  const auto target = g.weight_target(1);
  Attributes attrs{{"positions", g.program().shape(g.input(1))[0]}, {"accumulate", target.accumulate}};
  if (g.op().attrs.has("offset")) attrs.set("offset", g.op().attrs.integer("offset"));
  g.emit_into(kAddPositionsBackward, {g.gradient(0)}, attrs, {target.id});
}

std::vector<Tensor> infer_add_positions_backward(const Program& p, const Op& op) {
  return {{.shape = {op.attrs.integer("positions"), p.shape(op.inputs.at(0))[-1]},
           .role = Role::gradient,
           .full_precision = true}};
}

/// One addition per element of dy. With `accumulate` only the rows of the T positions are read and written.
Cost cost_add_positions_backward(const Program& p, const Op& op) {
  const Tensor& dy = p.tensor(op.inputs.at(0));
  const Tensor& table = p.tensor(op.outputs.at(0));
  const bool accumulate = op.attrs.flag("accumulate");
  const std::int64_t rows_bytes = dy.shape[1] * dy.shape[2] * element_bytes(p, op.outputs[0]);
  return {.elementwise_flop = dy.shape.numel(),
          .bytes_read = dy.bytes() + (accumulate ? rows_bytes : 0),
          .bytes_written = accumulate ? rows_bytes : table.bytes()};
}

/// x[b, t, :] = wte[tokens[b, t], :] + wpe[t, :], made by the fuse pass; `first` is its fourth input.
std::vector<Tensor> infer_embedding_positions(const Program& p, const Op& op) {
  return infer_embedding(p, op);
}

void plain_embedding_positions(PlainForm& f) {
  f.emit(kEmbedding, {f.input(0), f.input(1)}, {}, {f.output(0)});
  std::vector<PlainForm::Operand> inputs = {f.output(0), f.input(2)};
  if (f.op().inputs.size() > 3) inputs.push_back(f.input(3));
  f.emit(kAddPositions, inputs, f.op().attrs, {f.output(0)});
}

Cost cost_embedding_positions(const Program& p, const Op& op) {
  Cost cost = cost_embedding(p, op);
  const Shape& x = p.shape(op.outputs.at(0));
  cost.elementwise_flop = x.numel();
  cost.bytes_read = position_bytes(p, op, 2) + cost.bytes_read;
  return cost;
}

}  // namespace

const OpDef kEmbedding{.name = "embedding",
                       .work = Work::embedding,
                       .infer = infer_embedding,
                       .cost = cost_embedding,
                       .gradient = gradient_embedding,
                       .weights_in_compute_dtype = true};
const OpDef kEmbeddingBackward{.name = "embedding_backward",
                               .work = Work::embedding,
                               .infer = infer_embedding_backward,
                               .cost = cost_embedding_backward};
const OpDef kAddPositions{.name = "add_positions",
                          .work = Work::embedding,
                          .infer = infer_add_positions,
                          .cost = cost_add_positions,
                          .gradient = gradient_add_positions,
                          .in_place_input = 0,
                          .weights_in_compute_dtype = true};
const OpDef kAddPositionsBackward{.name = "add_positions_backward",
                                  .work = Work::embedding,
                                  .infer = infer_add_positions_backward,
                                  .cost = cost_add_positions_backward};
const OpDef kEmbeddingPositions{.name = "embedding_positions",
                                .work = Work::embedding,
                                .infer = infer_embedding_positions,
                                .cost = cost_embedding_positions,
                                .weights_in_compute_dtype = true,
                                .plain = plain_embedding_positions};

}  // namespace rooflm::program::ops
