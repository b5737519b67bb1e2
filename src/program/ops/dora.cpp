// DoRA (Liu et al., 2024): y = m / |W + f B A| (x W^T + f (x A^T) B^T), |..| by row, without a gradient.
//
// row_squares: s[i] = sum over k of W[at + i, k]^2, for n rows of W [rows, in], whatever W is stored as. A
// frozen W has them once, so the op is one of setup. Attributes: at, n.
//
// inverse_norms: r[i] = 1 / |W[at + i] + f B[i] A|, from |w + f b A|^2 = |w|^2 + 2 f b (A w) + f^2 b (A A^T)
// b^T: s [n], P = A W^T [rank, columns], of which [at, at + n) are these rows, G = A A^T [rank, rank], B [n,
// rank]. Squares below a millionth of s, which are rounding errors, count as that. Attributes: at, factor.
//
// set_scales: z[at + i] = m[i] r[i]; elsewhere z is an earlier z [width], or 1 where that is absent. m and r
// [n]. Attributes: at, width. set_scales_backward: dm[i] (+)= dz[at + i] r[i]. Attributes: at, accumulate.
//
// scale_columns: y[r, i] = x[r, i] z[i] for x [.., width]. scale_columns_backward: dx[r, i] = dy[r, i] z[i]
// and dz[i] = sum over r of dy[r, i] x[r, i].
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

enum SetScales : std::size_t { kEarlier, kMagnitudes, kInverseNorms };

std::vector<Tensor> infer_row_squares(const Program& p, const Op& op) {
  const Shape& w = p.shape(op.inputs.at(0));
  const std::int64_t at = op.attrs.integer("at");
  const std::int64_t n = op.attrs.integer("n");
  expect(w.rank() == 2 && at >= 0 && n > 0 && at + n <= w[0], op,
         [&] { return fmt::format("rows {} to {} of {}", at, at + n, w.str()); });
  return {{.shape = {n}, .role = Role::weight, .full_precision = true}};
}

/// 2 per element of the rows.
Cost cost_row_squares(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * core::Count(op.attrs.integer("n")) * p.shape(op.inputs.at(0))[-1]};
}

std::vector<Tensor> infer_inverse_norms(const Program& p, const Op& op) {
  const Shape& b = p.shape(op.inputs.at(3));
  const Shape& products = p.shape(op.inputs.at(1));
  const std::int64_t at = op.attrs.integer("at");
  const bool fits = b.rank() == 2 && p.shape(op.inputs.at(0)) == Shape{b[0]} && products.rank() == 2 &&
                    products[0] == b[1] && at >= 0 && at + b[0] <= products[1] &&
                    p.shape(op.inputs.at(2)) == Shape{b[1], b[1]};
  expect(fits, op, [&] {
    return fmt::format("s {}, P {}, G {} and B {} at {} do not fit", p.shape(op.inputs[0]).str(),
                       products.str(), p.shape(op.inputs[2]).str(), b.str(), at);
  });
  return {{.shape = {b[0]}, .full_precision = true}};
}

/// Per row: 2 rank for P, 2 rank (rank + 1) for G, and 6 for the sum, its root and the division.
Cost cost_inverse_norms(const Program& p, const Op& op) {
  const Shape& b = p.shape(op.inputs.at(3));
  const core::Count rank = b[1];
  return {.elementwise_flop = b[0] * (2 * rank + 2 * rank * (rank + 1) + 6)};
}

std::vector<Tensor> infer_set_scales(const Program& p, const Op& op) {
  const Shape& m = p.shape(op.inputs.at(kMagnitudes));
  const std::int64_t at = op.attrs.integer("at");
  const std::int64_t width = op.attrs.integer("width");
  const TensorId earlier = op.inputs.at(kEarlier);
  const bool fits = m.rank() == 1 && m == p.shape(op.inputs.at(kInverseNorms)) && at >= 0 &&
                    at + m[0] <= width && (earlier == kNone || p.shape(earlier) == Shape{width});
  expect(fits, op, [&] { return fmt::format("{} magnitudes at {} of {} columns", m.str(), at, width); });
  return {{.shape = {width}, .full_precision = true}};
}

/// 1 per magnitude.
Cost cost_set_scales(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(kMagnitudes)).numel()};
}

/// Ops that set an earlier z read their own columns of dz.
void gradient_set_scales(GradientContext& g) {
  const TensorId dz = g.gradient(0);
  const auto target = g.weight_target(kMagnitudes);
  g.emit_into(kSetScalesBackward, {dz, g.input(kInverseNorms)},
              {{"at", g.op().attrs.integer("at")}, {"accumulate", target.accumulate}}, {target.id});
  if (g.input(kEarlier) != kNone) g.propagate(kEarlier, dz);
}

std::vector<Tensor> infer_set_scales_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(1)), .role = Role::gradient, .full_precision = true}};
}

Cost cost_set_scales_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(1)).numel()};
}

void expect_scales(const Program& p, const Op& op, const Shape& x, TensorId scales) {
  expect(p.shape(scales) == Shape{x[-1]}, op,
         [&] { return fmt::format("scales {} do not match x {}", p.shape(scales).str(), x.str()); });
}

std::vector<Tensor> infer_scale_columns(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect_scales(p, op, x, op.inputs.at(1));
  return {{.shape = x}};
}

/// 1 per element.
Cost cost_scale_columns(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

void gradient_scale_columns(GradientContext& g) {
  const auto gradients = g.emit(kScaleColumnsBackward, {g.gradient(0), g.input(0), g.input(1)}, {});
  g.propagate(0, gradients.at(0));
  g.propagate(1, gradients.at(1));
}

std::vector<Tensor> infer_scale_columns_backward(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(1));
  expect(p.shape(op.inputs.at(0)).numel() == x.numel(), op,
         [&] { return fmt::format("dy {} does not match x {}", p.shape(op.inputs[0]).str(), x.str()); });
  expect_scales(p, op, x, op.inputs.at(2));
  return {{.shape = x, .role = Role::activation_gradient},
          {.shape = {x[-1]}, .role = Role::activation_gradient, .full_precision = true}};
}

/// 3 per element.
Cost cost_scale_columns_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 3 * core::Count(p.shape(op.inputs.at(0)).numel())};
}

}  // namespace

const OpDef kRowSquares{.name = "row_squares", .infer = infer_row_squares, .cost = cost_row_squares};
const OpDef kInverseNorms{.name = "inverse_norms", .infer = infer_inverse_norms, .cost = cost_inverse_norms};
const OpDef kSetScales{.name = "set_scales",
                       .infer = infer_set_scales,
                       .cost = cost_set_scales,
                       .gradient = gradient_set_scales};
const OpDef kSetScalesBackward{
    .name = "set_scales_backward", .infer = infer_set_scales_backward, .cost = cost_set_scales_backward};
const OpDef kScaleColumns{.name = "scale_columns",
                          .infer = infer_scale_columns,
                          .cost = cost_scale_columns,
                          .gradient = gradient_scale_columns,
                          .in_place_input = 0,
                          .cheap_to_recompute = true};
const OpDef kScaleColumnsBackward{.name = "scale_columns_backward",
                                  .infer = infer_scale_columns_backward,
                                  .cost = cost_scale_columns_backward,
                                  .in_place_input = 0};

}  // namespace rooflm::program::ops
