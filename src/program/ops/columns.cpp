// add_columns: z[r, at + i] = x[r, at + i] + factor y[r, i] for y [.., n], and z = x in the other columns of
// x
// [.., N]: what an adapter adds to a part of a projection. take_columns: y[r, i] = factor x[r, at + i].
// Attributes: at, n, factor.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

void expect_columns(const Op& op, const core::Shape& x) {
  const std::int64_t at = op.attrs.integer("at");
  const std::int64_t n = op.attrs.integer("n");
  expect(at >= 0 && n > 0 && at + n <= x[-1], op,
         [&] { return fmt::format("columns {} to {} of {}", at, at + n, x.str()); });
}

std::vector<Tensor> infer_add_columns(const Program& p, const Op& op) {
  const core::Shape& x = p.shape(op.inputs.at(0));
  const core::Shape& y = p.shape(op.inputs.at(1));
  expect_columns(op, x);
  expect(y.numel() / op.attrs.integer("n") == x.numel() / x[-1], op,
         [&] { return fmt::format("{} and {} have different rows", x.str(), y.str()); });
  return {{.shape = x}};
}

/// 2 per element of y.
Cost cost_add_columns(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * core::Count(p.shape(op.inputs.at(1)).numel())};
}

/// dx = dz, dy = factor dz[:, at : at + n]
void gradient_add_columns(GradientContext& g) {
  g.propagate(0, g.gradient(0));
  g.propagate(1, g.emit(kTakeColumns, {g.gradient(0)}, g.op().attrs, {g.program().shape(g.input(1))}).at(0));
}

std::vector<Tensor> infer_take_columns(const Program& p, const Op& op) {
  const core::Shape& x = p.shape(op.inputs.at(0));
  expect_columns(op, x);
  return {{.shape = {x.numel() / x[-1], op.attrs.integer("n")}}};
}

/// 1 per element of y; only these are read.
Cost cost_take_columns(const Program& p, const Op& op) {
  const core::Count elements = p.shape(op.outputs.at(0)).numel();
  const auto size = [&](TensorId id) { return static_cast<std::int64_t>(core::size_of(p.tensor(id).dtype)); };
  return {.elementwise_flop = elements,
          .bytes_read = elements * size(op.inputs[0]),
          .bytes_written = elements * size(op.outputs[0])};
}

}  // namespace

const OpDef kAddColumns{.name = "add_columns",
                        .infer = infer_add_columns,
                        .cost = cost_add_columns,
                        .gradient = gradient_add_columns,
                        .in_place_input = 0,
                        .cheap_to_recompute = false};
const OpDef kTakeColumns{.name = "take_columns", .infer = infer_take_columns, .cost = cost_take_columns};

}  // namespace rooflm::program::ops
