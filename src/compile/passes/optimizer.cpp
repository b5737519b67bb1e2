// Appends the optimizer step to a program.
#include "compile/passes/optimizer.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "program/builder.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using program::Attributes;
using program::Program;
using program::Role;
using program::TensorId;

/// (weight, gradient) pairs in the order of the weights.
std::vector<std::pair<TensorId, TensorId>> weight_gradients(const Program& program,
                                                            const program::GradientMap& gradients) {
  std::vector<std::pair<TensorId, TensorId>> pairs;
  for (TensorId id = 0; id < static_cast<TensorId>(program.tensors.size()); ++id) {
    if (program.tensor(id).role != Role::weight) continue;
    if (const TensorId gradient = gradients.of(id); gradient != program::kNone)
      pairs.emplace_back(id, gradient);
  }
  return pairs;
}

TensorId add_state(Program& program, const std::string& moment, TensorId weight) {
  return program.add_tensor({.name = moment + "." + program.tensor(weight).name,
                             .shape = program.shape(weight),
                             .role = Role::optimizer_state,
                             .full_precision = true,
                             .shards = program.tensor(weight).shards});
}

}  // namespace

void append_optimizer(Program& program, const program::GradientMap& gradients,
                      const OptimizerOptions& options) {
  program::Builder builder(program, program::Phase::optimizer);
  const auto scope = builder.scope("optimizer");
  const TensorId hyper =
      program.add_tensor({.name = "hyper", .shape = {4}, .role = Role::input, .full_precision = true});
  const auto pairs = weight_gradients(program, gradients);
  TensorId norm = program::kNone;
  if (options.clip_norm > 0) {
    std::vector<TensorId> all;
    for (const auto& pair : pairs) all.push_back(pair.second);
    norm = builder.op(ops::kGlobalNorm, std::move(all), {}, "grad_norm");
  }
  for (const auto& [weight, gradient] : pairs) {
    if (program.shape(weight).numel() == 0) continue;  // not every rank has a part of a small tensor
    const bool decays = program::whole_shape(program.tensor(weight)).rank() >= 2;
    const double decay = decays ? options.weight_decay : 0.0;
    if (options.kind == OptimizerKind::sgd) {
      const Attributes attrs{{"weight_decay", decay}, {"max_norm", options.clip_norm}, {"copies", false}};
      builder.op_into(ops::kSgd, {hyper, norm, weight, gradient}, attrs, {weight});
      continue;
    }
    const TensorId m = add_state(program, "m", weight);
    const TensorId v = add_state(program, "v", weight);
    const Attributes attrs{{"beta1", options.beta1}, {"beta2", options.beta2},        {"eps", options.eps},
                           {"weight_decay", decay},  {"max_norm", options.clip_norm}, {"copies", false}};
    builder.op_into(ops::kAdamW, {hyper, norm, weight, gradient, m, v}, attrs, {weight, m, v});
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
