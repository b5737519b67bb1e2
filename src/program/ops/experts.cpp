// Experts: feed-forward layers of which each token takes `active` of `experts` (Shazeer et al., 2017). Their
// matmuls are batched, one of R rows for each expert: every expert has equally many rows, R = N k / E for N
// tokens, rounded up. Real routing is uneven; that is not priced. No backend has kernels yet: models with
// experts are planned.
//   route (scores [.., E]) -> weights [N, k], places [N, k] int32: softmax over the k highest scores of a
//   token, and where its rows are among those of the experts. dispatch (x [.., C], places) -> rows [E, R, C]:
//   the rows of each expert. With the attribute `touched` there are so many experts, those that few tokens
//   take. combine (rows [E, R, C], weights, places) -> y [N, C]: the weighted sum of each token's k rows.
// Attributes: experts, active; touched.
#include <fmt/format.h>

#include <algorithm>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

/// N k: rows that tokens have with their experts.
Count routed_elements(const Program& p, TensorId places, std::int64_t width) {
  return Count(p.shape(places).numel()) * width;
}

std::vector<Tensor> infer_route(const Program& p, const Op& op) {
  const Shape& scores = p.shape(op.inputs.at(0));
  const std::int64_t active = op.attrs.integer("active");
  expect(scores[-1] == op.attrs.integer("experts") && active > 0 && active <= scores[-1], op, [&] {
    return fmt::format("{} of {} experts, with scores {}", active, op.attrs.integer("experts"), scores.str());
  });
  const Shape chosen{scores.numel() / scores[-1], active};
  return {{.shape = chosen, .full_precision = true}, {.shape = chosen, .dtype = core::DType::i32}};
}

/// A comparison per score and choice, and the softmax of the chosen: 5 each.
Cost cost_route(const Program& p, const Op& op) {
  const Count scores = p.shape(op.inputs.at(0)).numel();
  return {.elementwise_flop = scores * op.attrs.integer("active") + 5 * p.shape(op.outputs.at(0)).numel()};
}

void gradient_route(GradientContext& g) {
  const TensorId scores = g.input(0);
  g.propagate(0, g.emit(kRouteBackward, {g.gradient(0), scores, g.output(1)}, g.op().attrs).at(0));
}

std::vector<Tensor> infer_route_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient}};
}

/// 5 per chosen score.
Cost cost_route_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 5 * p.shape(op.inputs.at(0)).numel()};
}

std::vector<Tensor> infer_dispatch(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Shape& places = p.shape(op.inputs.at(1));
  expect(places.rank() == 2 && places[0] == x.numel() / x[-1], op,
         [&] { return fmt::format("places {} do not match x {}", places.str(), x.str()); });
  const std::int64_t experts = op.attrs.integer(op.attrs.has("touched") ? "touched" : "experts");
  return {{.shape = {experts, (places.numel() + experts - 1) / experts, x[-1]}}};
}

/// Pure traffic: a copy of each token for each of its experts.
Cost cost_dispatch(const Program& p, const Op& op) {
  const Count bytes = p.tensor(op.outputs.at(0)).bytes();
  return {.bytes_read = bytes + p.tensor(op.inputs.at(1)).bytes(), .bytes_written = bytes};
}

void gradient_dispatch(GradientContext& g) {
  g.propagate(
      0, g.emit(kDispatchBackward, {g.gradient(0), g.input(1)}, g.op().attrs, {g.program().shape(g.input(0))})
             .at(0));
}

/// Inputs: drows [E, R, C], places. Output: dx [N, C], the sum of a token's rows.
std::vector<Tensor> infer_rows(const Program& p, const Op& op, std::size_t places) {
  return {{.shape = {p.shape(op.inputs.at(places))[0], p.shape(op.inputs.at(0))[-1]}}};
}
std::vector<Tensor> infer_dispatch_backward(const Program& p, const Op& op) {
  auto dx = infer_rows(p, op, 1);
  dx[0].role = Role::activation_gradient;
  return dx;
}

Cost cost_dispatch_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = routed_elements(p, op.inputs.at(1), p.shape(op.inputs[0])[-1])};
}

/// The places are the last input.
std::vector<Tensor> infer_combine(const Program& p, const Op& op) { return infer_rows(p, op, 2); }

/// A multiplication and an addition per element of a row.
Cost cost_combine(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * routed_elements(p, op.inputs.at(2), p.shape(op.inputs[0])[-1])};
}

/// Inputs of the backward op: dy, rows, weights, places. Outputs: drows, dweights.
void gradient_combine(GradientContext& g) {
  const auto made =
      g.emit(kCombineBackward, {g.gradient(0), g.input(0), g.input(1), g.input(2)}, g.op().attrs);
  g.propagate(0, made.at(0));
  g.propagate(1, made.at(1));
}

std::vector<Tensor> infer_combine_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient},
          {.shape = p.shape(op.inputs.at(2)), .role = Role::activation_gradient, .full_precision = true}};
}

/// Per element of a row a product for the row's gradient, and a product and a sum for its weight's.
Cost cost_combine_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 3 * routed_elements(p, op.inputs.at(3), p.shape(op.inputs[1])[-1])};
}

}  // namespace

const OpDef kRoute{.name = "route",
                   .work = Work::softmax,
                   .infer = infer_route,
                   .cost = cost_route,
                   .gradient = gradient_route};
const OpDef kRouteBackward{.name = "route_backward",
                           .work = Work::softmax,
                           .infer = infer_route_backward,
                           .cost = cost_route_backward};
const OpDef kDispatch{.name = "dispatch",
                      .work = Work::copy,
                      .infer = infer_dispatch,
                      .cost = cost_dispatch,
                      .gradient = gradient_dispatch,
                      .cheap_to_recompute = true};
const OpDef kDispatchBackward{
    .name = "dispatch_backward", .infer = infer_dispatch_backward, .cost = cost_dispatch_backward};
const OpDef kCombine{
    .name = "combine", .infer = infer_combine, .cost = cost_combine, .gradient = gradient_combine};
const OpDef kCombineBackward{
    .name = "combine_backward", .infer = infer_combine_backward, .cost = cost_combine_backward};

}  // namespace rooflm::program::ops
