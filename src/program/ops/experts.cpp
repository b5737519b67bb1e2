// Experts: feed-forward layers of which each token takes K of E (Shazeer et al., 2017). No token is dropped,
// and all shapes are known before the step: N tokens have R = N K rows, sorted by expert. grouped_matmul.cpp
// multiplies the rows of each expert with its weights.
//   route (logits [.., E], bias [E]) -> weights [N, K] fp32, experts [N, K] int32: the K experts of the
//   highest
//     scores s, of equal ones the lowest. s is the softmax of the logits, or with `sigmoid` their sigmoid.
//     The bias, which may be absent, is added to s for the choice alone (Wang et al., 2024). w = scale s,
//     with `normalised` scale s / (sum of the K chosen s). With `groups` G (DeepSeek-V2 and V3, 2024) the
//     experts are G groups of equally many, and are chosen from the `active_groups` with the highest sums of
//     their `group_best` highest s (with the bias). With `jitter` (a sparse mixer: Phi-3.5-MoE, 2024) the
//     k-th expert has the highest logit m of those not chosen yet, and w is its softmax among those of them
//     with m - logit <= 2 jitter max(|logit|, m); its gradient takes that set as given.
//   dispatch (experts [N, K]) -> order [R], places [N, K], offsets [E + 1], all int32: row r belongs to
//   choice
//     order[r] = n K + k, and places is the inverse. Expert e has the rows offsets[e] <= r < offsets[e + 1],
//     in the order of tokens. With `capacity` an expert has at most so many rows, its first ones: places of
//     other choices are -1, and so is order behind the last row.
//   gather_rows (x [.., C], order, places) -> rows [R, C]: rows[r] = x[order[r] / K].
//   combine (rows [R, C], weights, places) -> y [N, C] = sum over k of weights[n, k] rows[places[n, k]].
//   balance_bias (bias [E], offsets [E + 1] of each micro-batch) -> bias, in place: that of an expert with
//   more
//     rows than the mean loses `rate`, that of one with fewer gains it (Wang et al., 2024).
// gather_rows with a fourth input `weights` [N, K] and the flag weighs_input (Llama 4): rows[r] = w
// x[order[r] / K], w that of choice order[r]; combine without weights is the sum of a token's rows.
// Attributes: experts, active; of route: sigmoid, normalised, scale, and two losses that reach the logits'
// gradient and are in no reported loss. balance: coefficient of E * sum over e of f_e P_e (Fedus et al.,
// 2021), where f_e is the number of rows of e per token, which adds up to K as in Mixtral, and P_e the mean
// over tokens of e's share of the scores. z_loss: coefficient of the mean of logsumexp(logits)^2 (Zoph et
// al., 2022). share: of the step's loss (of micro-batches and ranks, each of which balances its own tokens).
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

/// Sums in the softmax of a row, or in its gradient, per score.
constexpr std::int64_t kSoftmaxFlop = 5;

void expect_experts(const Program& p, const Op& op, TensorId ids) {
  const Shape& shape = p.shape(ids);
  expect(
      shape.rank() == 2 && shape[1] == op.attrs.integer("active") && p.tensor(ids).dtype == core::DType::i32,
      op, [&] {
        return fmt::format("{} are not the {} experts of tokens", shape.str(), op.attrs.integer("active"));
      });
}

std::vector<Tensor> infer_route(const Program& p, const Op& op) {
  const Shape& logits = p.shape(op.inputs.at(0));
  const std::int64_t active = op.attrs.integer("active");
  expect(logits[-1] == op.attrs.integer("experts") && active > 0 && active <= logits[-1], op, [&] {
    return fmt::format("{} of {} experts, with logits {}", active, op.attrs.integer("experts"), logits.str());
  });
  const bool has_bias = op.inputs.size() > 1 && op.inputs[1] != kNone;
  expect(!has_bias || p.shape(op.inputs[1]) == Shape{logits[-1]}, op, [&] {
    return fmt::format("bias {} does not match logits {}", p.shape(op.inputs[1]).str(), logits.str());
  });
  if (op.attrs.has("groups")) {
    const std::int64_t groups = op.attrs.integer("groups");
    const std::int64_t chosen_of = op.attrs.integer("active_groups");
    const bool fits = groups > 0 && logits[-1] % groups == 0 && chosen_of > 0 && chosen_of <= groups &&
                      Count(chosen_of) * (logits[-1] / groups) >= active;
    expect(fits, op, [&] {
      return fmt::format("{} experts from {} of {} groups of {}", active, chosen_of, groups, logits[-1]);
    });
  }
  const Shape chosen{logits.numel() / logits[-1], active};
  return {{.shape = chosen, .full_precision = true}, {.shape = chosen, .dtype = core::DType::i32}};
}

/// The scores, and a comparison per score and choice: of experts, of the best of a group, of groups. A sparse
/// mixer computes a softmax per choice.
Cost cost_route(const Program& p, const Op& op) {
  const Attributes& a = op.attrs;
  const Count logits = p.shape(op.inputs.at(0)).numel();
  if (a.has("jitter")) return {.elementwise_flop = logits * (kSoftmaxFlop + 1) * a.integer("active")};
  Count flop = logits * (kSoftmaxFlop + a.integer("active"));
  if (a.has("groups")) {
    const Count all_groups = logits / a.integer("experts") * a.integer("groups");
    flop = flop + logits * a.integer("group_best") + all_groups * a.integer("active_groups");
  }
  return {.elementwise_flop = flop};
}

void gradient_route(GradientContext& g) {
  g.propagate(0, g.emit(kRouteBackward, {g.gradient(0), g.input(0), g.output(1)}, g.op().attrs).at(0));
}

/// dlogits of dweights, logits, experts; a fourth input is the state of the loss scale (passes/scale_loss.h).
std::vector<Tensor> infer_route_backward(const Program& p, const Op& op) {
  expect_experts(p, op, op.inputs.at(2));
  return {{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient}};
}

/// The scores once more, and their gradient.
Cost cost_route_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * kSoftmaxFlop * Count(p.shape(op.inputs.at(1)).numel())};
}

std::vector<Tensor> infer_dispatch(const Program& p, const Op& op) {
  expect_experts(p, op, op.inputs.at(0));
  const Shape& experts = p.shape(op.inputs[0]);
  const auto ids = [](const Shape& shape) { return Tensor{.shape = shape, .dtype = core::DType::i32}; };
  return {ids({experts.numel()}), ids(experts), ids({op.attrs.integer("experts") + 1})};
}

/// Counting, summing and placing: one addition each.
Cost cost_dispatch(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * Count(p.shape(op.inputs.at(0)).numel()) + op.attrs.integer("experts")};
}

std::vector<Tensor> infer_gather_rows(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Shape& places = p.shape(op.inputs.at(2));
  expect_experts(p, op, op.inputs[2]);
  expect(places[0] == x.numel() / x[-1] && p.shape(op.inputs[1]).numel() == places.numel(), op,
         [&] { return fmt::format("places {} do not match x {}", places.str(), x.str()); });
  return {{.shape = {places.numel(), x[-1]}}};
}

/// Pure traffic: a copy of each token for each of its experts. Weights multiply it.
Cost cost_gather_rows(const Program& p, const Op& op) {
  const Tensor& rows = p.tensor(op.outputs.at(0));
  return {.elementwise_flop = op.attrs.flag("weighs_input") ? Count(rows.shape.numel()) : Count(0),
          .bytes_read = Count(rows.bytes()) + p.tensor(op.inputs.at(1)).bytes(),
          .bytes_written = rows.bytes()};
}

void gradient_gather_rows(GradientContext& g) {
  if (g.op().attrs.flag("weighs_input")) {
    const auto made = g.emit(kGatherRowsBackward, {g.gradient(0), g.input(3), g.input(2), g.input(0)},
                             g.op().attrs, {g.program().shape(g.input(0))});
    g.propagate(0, made.at(0));
    return g.propagate(3, made.at(1));
  }
  g.propagate(0, g.emit(kGatherRowsBackward, {g.gradient(0), g.input(2)}, g.op().attrs,
                        {g.program().shape(g.input(0))})
                     .at(0));
}

/// What is summed over the K rows of a token: [N, C].
Tensor infer_sum(const Program& p, const Op& op, std::size_t places) {
  const Shape& rows = p.shape(op.inputs.at(0));
  expect_experts(p, op, op.inputs.at(places));
  const Shape& of_tokens = p.shape(op.inputs[places]);
  expect(rows.rank() == 2 && rows[0] == of_tokens.numel(), op,
         [&] { return fmt::format("places {} do not match rows {}", of_tokens.str(), rows.str()); });
  return {.shape = {of_tokens[0], rows[1]}};
}

/// dx [N, C] of drows [R, C] and places: the sum of a token's rows, in the order of its experts. Of drows,
/// weights, places, x: the weighted sum, and dweights[n, k] = <drows[places[n, k]], x[n]>.
std::vector<Tensor> infer_gather_rows_backward(const Program& p, const Op& op) {
  const bool is_weighted = op.attrs.flag("weighs_input");
  Tensor dx = infer_sum(p, op, is_weighted ? 2 : 1);
  dx.role = Role::activation_gradient;
  if (!is_weighted) return {dx};
  return {dx, {.shape = p.shape(op.inputs.at(2)), .role = Role::activation_gradient, .full_precision = true}};
}

Cost cost_gather_rows_backward(const Program& p, const Op& op) {
  return {.elementwise_flop =
              (op.attrs.flag("weighs_input") ? 4 : 1) * Count(p.shape(op.inputs.at(0)).numel())};
}

std::vector<Tensor> infer_combine(const Program& p, const Op& op) {
  expect(op.inputs.at(1) == kNone || p.shape(op.inputs.at(1)) == p.shape(op.inputs.at(2)), op, [&] {
    return fmt::format("weights {} for places {}", p.shape(op.inputs[1]).str(), p.shape(op.inputs[2]).str());
  });
  return {infer_sum(p, op, 2)};
}

/// A multiplication and an addition per element of a row.
Cost cost_combine(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * Count(p.shape(op.inputs.at(0)).numel())};
}

void gradient_combine(GradientContext& g) {
  const auto made =
      g.emit(kCombineBackward, {g.gradient(0), g.input(0), g.input(1), g.input(2)}, g.op().attrs);
  g.propagate(0, made.at(0));
  if (made.size() > 1) g.propagate(1, made.at(1));
}

/// Of dy [.., C], rows, weights, places: drows[r] = w dy[n], dweights[n, k] = <dy[n], rows[r]>, r = places[n,
/// k].
std::vector<Tensor> infer_combine_backward(const Program& p, const Op& op) {
  const Tensor drows{.shape = p.shape(op.inputs.at(1)), .role = Role::activation_gradient};
  if (op.inputs.at(2) == kNone) return {drows};
  return {drows,
          {.shape = p.shape(op.inputs.at(2)), .role = Role::activation_gradient, .full_precision = true}};
}

/// Per element of a row a product for the row's gradient, and a product and a sum for its weight's.
Cost cost_combine_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 3 * Count(p.shape(op.inputs.at(1)).numel())};
}

std::vector<Tensor> infer_balance_bias(const Program& p, const Op& op) {
  const Shape& bias = p.shape(op.inputs.at(0));
  for (std::size_t i = 1; i < op.inputs.size(); ++i) {
    const Tensor& offsets = p.tensor(op.inputs[i]);
    expect(offsets.dtype == core::DType::i32 && offsets.shape == Shape{bias.numel() + 1}, op,
           [&] { return fmt::format("bias {} for offsets {}", bias.str(), offsets.shape.str()); });
  }
  return {{.shape = bias, .role = Role::weight, .full_precision = true}};
}

Cost cost_balance_bias(const Program& p, const Op& op) {
  return {.elementwise_flop =
              Count(p.shape(op.inputs.at(0)).numel()) * (static_cast<std::int64_t>(op.inputs.size()) + 1)};
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
const OpDef kDispatch{.name = "dispatch", .work = Work::copy, .infer = infer_dispatch, .cost = cost_dispatch};
const OpDef kGatherRows{.name = "gather_rows",
                        .work = Work::copy,
                        .infer = infer_gather_rows,
                        .cost = cost_gather_rows,
                        .gradient = gradient_gather_rows,
                        .cheap_to_recompute = true};
const OpDef kGatherRowsBackward{
    .name = "gather_rows_backward", .infer = infer_gather_rows_backward, .cost = cost_gather_rows_backward};
const OpDef kCombine{
    .name = "combine", .infer = infer_combine, .cost = cost_combine, .gradient = gradient_combine};
const OpDef kCombineBackward{
    .name = "combine_backward", .infer = infer_combine_backward, .cost = cost_combine_backward};
const OpDef kBalanceBias{
    .name = "balance_bias", .infer = infer_balance_bias, .cost = cost_balance_bias, .in_place_input = 0};

}  // namespace rooflm::program::ops
