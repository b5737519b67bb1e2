// Appends the optimizer step to a program.
#include "compile/passes/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/matrix_optimizer.h"
#include "compile/passes/words.h"
#include "core/checked.h"
#include "core/dynamic_8bit.h"
#include "core/error.h"
#include "program/builder.h"

namespace rooflm::passes {
namespace {

/// In the order of the weights.
std::vector<WeightGradient> weight_gradients(const Program& program, const program::GradientMap& gradients) {
  std::vector<WeightGradient> pairs;
  for (TensorId id = 0; id < static_cast<TensorId>(program.tensors.size()); ++id) {
    if (program.tensor(id).role != Role::weight) continue;
    if (const TensorId gradient = gradients.of(id); gradient != program::kNone)
      pairs.push_back({.weight = id, .gradient = gradient});
  }
  return pairs;
}

TensorId add_state(Program& program, const std::string& moment, TensorId weight,
                   const core::Shape& shape = {}, core::DType dtype = core::DType::f32) {
  return program.add_tensor({.name = moment + "." + program.tensor(weight).name,
                             .shape = shape.rank() > 0 ? shape : program.shape(weight),
                             .dtype = dtype,
                             .role = Role::optimizer_state,
                             .full_precision = true,
                             .shards = program.tensor(weight).shards});
}

/// Appends the update of one weight that needs none of the others.
void append_own_update(program::Builder& builder, const WeightGradient& pair, TensorId hyper, TensorId norm,
                       const OptimizerOptions& options) {
  Program& program = builder.program();
  const auto [weight, gradient] = pair;
  const bool decays = program::whole_shape(program.tensor(weight)).rank() >= 2;
  Attributes attrs{{"weight_decay", decays ? options.weight_decay : 0.0},
                   {"max_norm", options.clip_norm},
                   {"copies", false}};
  if (options.kind == OptimizerKind::sgd)
    return builder.op_into(ops::kSgd, {hyper, norm, weight, gradient}, attrs, {weight});
  attrs.set("beta1", options.beta1);
  attrs.set("beta2", options.beta2);
  if (options.kind == OptimizerKind::lion) {
    const TensorId m = add_state(program, "m", weight);
    return builder.op_into(ops::kLion, {hyper, norm, weight, gradient, m}, attrs, {weight, m});
  }
  attrs.set("eps", options.eps);
  std::vector<TensorId> moments;
  for (const std::string name : {"m", "v"}) {
    if (options.states == StateKind::eight_bit) {
      const core::Count n = program.shape(weight).numel();
      constexpr std::int64_t kCodes = 4;  // in an int32
      moments.push_back(add_state(program, name, weight, {(n + kCodes - 1) / kCodes}, core::DType::i32));
      moments.push_back(
          add_state(program, name + "_absmax", weight, {(n + core::kBlock8 - 1) / core::kBlock8}));
    } else {
      const bool is_half = options.states == StateKind::bf16;
      moments.push_back(add_state(program, name, weight, {}, is_half ? core::DType::bf16 : core::DType::f32));
    }
  }
  std::vector<TensorId> inputs{hyper, norm, weight, gradient}, outputs{weight};
  inputs.insert(inputs.end(), moments.begin(), moments.end());
  outputs.insert(outputs.end(), moments.begin(), moments.end());
  builder.op_into(options.states == StateKind::eight_bit ? ops::kAdamW8Bit : ops::kAdamW, std::move(inputs),
                  attrs, std::move(outputs));
}

/// Takes those that an optimizer of matrices updates out of `pairs`: those of one shape together, but for
/// what would take much memory at a time. Those that another rank owns are dropped.
std::vector<std::vector<WeightGradient>> take_matrices(const Program& program,
                                                       std::vector<WeightGradient>& pairs, bool groups) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 26U;
  const std::vector<bool> is_matrix = layer_matrices(program);
  std::vector<std::vector<WeightGradient>> taken;
  for (const WeightGradient& pair : pairs) {
    if (!is_matrix[static_cast<std::size_t>(pair.weight)]) continue;
    const program::Tensor& weight = program.tensor(pair.weight);
    if (weight.shape.numel() == 0) continue;
    const auto fits = [&](const std::vector<WeightGradient>& group) {
      const auto count = static_cast<std::int64_t>(group.size());
      return program.shape(group.front().weight) == weight.shape &&
             (count + 1) * weight.shape.numel() <= kMostElements;
    };
    const auto group = groups ? std::ranges::find_if(taken, fits) : taken.end();
    (group == taken.end() ? taken.emplace_back() : *group).push_back(pair);
  }
  std::erase_if(pairs,
                [&](const WeightGradient& pair) { return is_matrix[static_cast<std::size_t>(pair.weight)]; });
  return taken;
}

}  // namespace

void append_optimizer(Program& program, const program::GradientMap& gradients,
                      const OptimizerOptions& options, bool groups) {
  program::Builder builder(program, program::Phase::optimizer);
  const auto scope = builder.scope("optimizer");
  const TensorId hyper =
      program.add_tensor({.name = "hyper", .shape = {4}, .role = Role::input, .full_precision = true});
  auto pairs = weight_gradients(program, gradients);
  TensorId norm = program::kNone;
  if (options.clip_norm > 0) {
    std::vector<TensorId> all;
    for (const auto& pair : pairs) all.push_back(pair.gradient);
    norm = builder.op(ops::kGlobalNorm, std::move(all), {}, "grad_norm");
  }
  if (is_of_matrices(options.kind)) {
    for (const auto& group : take_matrices(program, pairs, groups))
      append_matrix_updates(builder, group, hyper, norm, options);
  }
  for (const WeightGradient& pair : pairs) {
    // Not every rank has a part of a small tensor.
    if (program.shape(pair.weight).numel() > 0) append_own_update(builder, pair, hyper, norm, options);
  }
}

void balance_biases(Program& program, double rate) {
  std::map<TensorId, std::vector<TensorId>> offsets;  // of micro-batches, by bias
  for (const program::Op& route : program.ops) {
    if (!route.is(ops::kRoute) || route.phase != program::Phase::forward || route.inputs.size() < 2) continue;
    for (const program::Op& dispatch : program.ops) {
      if (dispatch.is(ops::kDispatch) && dispatch.inputs[0] == route.outputs[1])
        offsets[route.inputs[1]].push_back(dispatch.outputs[2]);
    }
  }
  if (offsets.empty())
    throw core::UsageError(fmt::format("--expert-bias-rate {}: no experts of the model have a bias", rate));
  program::Builder builder(program, program::Phase::optimizer);
  const auto scope = builder.scope("optimizer");
  for (auto& [bias, inputs] : offsets) {
    inputs.insert(inputs.begin(), bias);
    builder.op_into(ops::kBalanceBias, inputs, {{"rate", rate}}, {bias});
  }
}

}  // namespace rooflm::passes
