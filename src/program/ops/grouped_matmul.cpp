// grouped_matmul: c[r] = a[r] op(b[e]) for the rows offsets[e] <= r < offsets[e + 1] of each expert e.
// Inputs: a [R, k], b [E, k, n] or with trans_b [E, n, k], offsets [E + 1] int32; output c [R, n].
// grouped_matmul_weight: db[e] (+)= (rows of e of a)^T (rows of e of b), [E, m, n], of a [R, m], b [R, n] and
// offsets; zero where e has no rows.
// grouped_bias_add: y[r] = x[r] + bias[e] of the rows of each expert; inputs x [R, n], bias [E, n], offsets.
// grouped_bias_backward: db[e] (+)= sum of the rows of e of dy, [E, n]; inputs dy, offsets.
//
// Attributes of the matmuls: as those of the batched matmul that it would be if all experts that are touched,
// at most min(E, R), had equally many rows: batch, m, n, k, trans_a, trans_b, accumulate. Kernels take the
// rows from the offsets. FLOPs are those of R rows, however they are spread; bytes are the rows and the
// weights of the touched experts. Where a has room for more rows than come on average, `rows` says how many
// these are.
#include <fmt/format.h>

#include <algorithm>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

Count bytes_per_element(const Program& p, TensorId id) {
  return static_cast<std::int64_t>(core::size_of(p.tensor(id).dtype));
}

/// b [E, ..] and offsets [E + 1] are of the same experts.
void expect_offsets(const Program& p, const Op& op, std::int64_t experts) {
  const Tensor& offsets = p.tensor(op.inputs.at(2));
  expect(offsets.dtype == core::DType::i32 && offsets.shape == Shape{experts + 1}, op,
         [&] { return fmt::format("offsets {} of {} experts", offsets.shape.str(), experts); });
}

std::vector<Tensor> infer_grouped_matmul(const Program& p, const Op& op) {
  const Shape& a = p.shape(op.inputs.at(0));
  const Shape& b = p.shape(op.inputs.at(1));
  const std::int64_t n = op.attrs.integer("n");
  const std::int64_t k = op.attrs.integer("k");
  expect(
      a[-1] == k && b.rank() == 3 && b == (op.attrs.flag("trans_b") ? Shape{b[0], n, k} : Shape{b[0], k, n}),
      op, [&] { return fmt::format("rows {} do not match weights {}", a.str(), b.str()); });
  expect_offsets(p, op, b[0]);
  return {{.shape = {a.numel() / k, n}}};
}

/// The rows of all experts together that an op is priced with.
std::int64_t priced_rows(const Program& p, const Op& op) {
  if (op.attrs.has("rows")) return op.attrs.integer("rows");
  const Shape& a = p.shape(op.inputs.at(0));
  return a.numel() / a[-1];
}

/// 2nk FLOP per row.
Cost cost_grouped_matmul(const Program& p, const Op& op) {
  const Count rows = priced_rows(p, op);
  const Count of_expert = Count(op.attrs.integer("n")) * op.attrs.integer("k");
  return {.matmul_flop = 2 * rows * of_expert,
          .bytes_read = rows * op.attrs.integer("k") * bytes_per_element(p, op.inputs[0]) +
                        of_expert * op.attrs.integer("batch") * bytes_per_element(p, op.inputs[1]),
          .bytes_written = rows * op.attrs.integer("n") * bytes_per_element(p, op.outputs.at(0))};
}

/// da = dc op(b)^T, db[e] = dc^T a or a^T dc.
void gradient_grouped_matmul(GradientContext& g) {
  const TensorId a = g.input(0);
  const TensorId offsets = g.input(2);
  const TensorId dc = g.gradient(0);
  const bool trans_b = g.op().attrs.flag("trans_b");
  const std::int64_t experts = g.program().shape(g.input(1))[0];
  const std::int64_t rows = priced_rows(g.program(), g.op());
  const std::int64_t n = g.op().attrs.integer("n");
  const std::int64_t k = g.op().attrs.integer("k");
  Attributes of_rows = grouped_matmul(experts, rows, k, n, !trans_b);
  if (g.op().attrs.has("rows")) of_rows.set("rows", rows);
  g.propagate(0, g.emit(kGroupedMatmul, {dc, g.input(1), offsets}, of_rows, {g.program().shape(a)}).at(0));
  const auto target = g.weight_target(1);
  const auto batch = g.op().attrs.integer("batch");
  Attributes attrs{{"batch", batch},
                   {"m", trans_b ? n : k},
                   {"n", trans_b ? k : n},
                   {"k", g.op().attrs.integer("m")},
                   {"trans_a", true},
                   {"trans_b", false},
                   {"accumulate", target.accumulate}};
  if (g.op().attrs.has("rows")) attrs.set("rows", rows);
  const std::vector<TensorId> operands = trans_b ? std::vector{dc, a, offsets} : std::vector{a, dc, offsets};
  g.emit_into(kGroupedMatmulWeight, operands, attrs, {target.id});
}

std::vector<Tensor> infer_grouped_matmul_weight(const Program& p, const Op& op) {
  const Shape& a = p.shape(op.inputs.at(0));
  const Shape& b = p.shape(op.inputs.at(1));
  const std::int64_t m = op.attrs.integer("m");
  const std::int64_t n = op.attrs.integer("n");
  const std::int64_t experts = p.shape(op.inputs.at(2)).numel() - 1;
  expect(a[-1] == m && b[-1] == n && a.numel() / m == b.numel() / n, op,
         [&] { return fmt::format("rows {} do not match rows {}", a.str(), b.str()); });
  expect_offsets(p, op, experts);
  return {{.shape = {experts, m, n}, .role = Role::gradient, .full_precision = true}};
}

/// 2mn FLOP per row. Without `accumulate` the gradients of all experts are written.
Cost cost_grouped_matmul_weight(const Program& p, const Op& op) {
  const Count m = op.attrs.integer("m");
  const Count n = op.attrs.integer("n");
  const Count rows = priced_rows(p, op);
  const bool accumulates = op.attrs.flag("accumulate");
  const Count touched = op.attrs.integer("batch");
  const Count written = (accumulates ? touched : Count(p.shape(op.inputs.at(2)).numel() - 1)) * m * n;
  const Count bytes = written * bytes_per_element(p, op.outputs.at(0));
  return {.matmul_flop = 2 * rows * m * n,
          .elementwise_flop = accumulates ? written : Count(0),
          .bytes_read = rows * m * bytes_per_element(p, op.inputs[0]) +
                        rows * n * bytes_per_element(p, op.inputs[1]) + (accumulates ? bytes : Count(0)),
          .bytes_written = bytes};
}

std::vector<Tensor> infer_grouped_bias_add(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Shape& bias = p.shape(op.inputs.at(1));
  expect(bias.rank() == 2 && bias[1] == x[-1], op,
         [&] { return fmt::format("biases {} do not match rows {}", bias.str(), x.str()); });
  expect_offsets(p, op, bias[0]);
  return {{.shape = x}};
}

/// 1 per element.
Cost cost_of_rows(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

void gradient_grouped_bias_add(GradientContext& g) {
  const auto target = g.weight_target(1);
  g.emit_into(kGroupedBiasBackward, {g.gradient(0), g.input(2)}, {{"accumulate", target.accumulate}},
              {target.id});
  g.propagate(0, g.gradient(0));
}

std::vector<Tensor> infer_grouped_bias_backward(const Program& p, const Op& op) {
  const Shape& dy = p.shape(op.inputs.at(0));
  const std::int64_t experts = p.shape(op.inputs.at(1)).numel() - 1;
  return {{.shape = {experts, dy[-1]}, .role = Role::gradient, .full_precision = true}};
}

}  // namespace

Attributes grouped_matmul(std::int64_t experts, std::int64_t rows, std::int64_t n, std::int64_t k,
                          bool trans_b) {
  const std::int64_t touched = std::min(experts, rows);
  return {{"batch", touched},
          {"m", (rows + touched - 1) / touched},
          {"n", n},
          {"k", k},
          {"trans_a", false},
          {"trans_b", trans_b},
          {"accumulate", false}};
}

bool is_matmul(const Op& op) {
  return op.is(kMatmul) || op.is(kGroupedMatmul) || op.is(kGroupedMatmulWeight);
}

const OpDef kGroupedMatmul{.name = "grouped_matmul",
                           .work = Work::matmul,
                           .infer = infer_grouped_matmul,
                           .cost = cost_grouped_matmul,
                           .gradient = gradient_grouped_matmul,
                           .weights_in_compute_dtype = true};
const OpDef kGroupedMatmulWeight{.name = "grouped_matmul_weight",
                                 .work = Work::matmul,
                                 .infer = infer_grouped_matmul_weight,
                                 .cost = cost_grouped_matmul_weight};
const OpDef kGroupedBiasAdd{.name = "grouped_bias_add",
                            .infer = infer_grouped_bias_add,
                            .cost = cost_of_rows,
                            .gradient = gradient_grouped_bias_add,
                            .in_place_input = 0,
                            .cheap_to_recompute = true};
const OpDef kGroupedBiasBackward{
    .name = "grouped_bias_backward", .infer = infer_grouped_bias_backward, .cost = cost_of_rows};

}  // namespace rooflm::program::ops
