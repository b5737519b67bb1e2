// Dynamic loss scaling, for compute dtypes whose range is too small for gradients (fp16).
#include "compile/passes/scale_loss.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compile/passes/words.h"
#include "program/loss_scale.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

using program::is_update;
using program::UpdateOperands;
using program::UpdateView;

/// The op that computes the global gradient norm; inserted before the updates if there is none.
Op& find_norm(Program& p) {
  const auto is_norm = [](const Op& op) { return op.is(ops::kGlobalNorm); };
  if (const auto found = std::find_if(p.ops.begin(), p.ops.end(), is_norm); found != p.ops.end()) {
    return *found;
  }
  const auto first = std::find_if(p.ops.begin(), p.ops.end(), is_update);
  Op norm;
  norm.def = &ops::kGlobalNorm;
  norm.phase = first->phase;
  norm.scope = first->scope;
  for (const Op& op : p.ops) {
    if (!is_update(op)) continue;
    const UpdateView update(op);
    for (std::size_t i = 0; i < update.count(); ++i) norm.inputs.push_back(update.gradient(i));
  }
  norm.outputs = {
      p.add_tensor({.name = "grad_norm", .shape = {1}, .role = Role::result, .full_precision = true})};
  return *p.ops.insert(first, std::move(norm));
}

}  // namespace

void scale_loss(Program& program) {
  const TensorId state = program.add_tensor({.name = "loss_scale",
                                             .shape = {program::kLossScaleState},
                                             .role = Role::optimizer_state,
                                             .full_precision = true});
  for (Op& op : program.ops) {
    if (op.is(ops::kCrossEntropyBackward) || op.is(ops::kRouteBackward)) op.inputs.push_back(state);
  }
  const Op& norm = find_norm(program);
  const TensorId norm_id = norm.outputs.at(0);
  program::Tensor& scaled_norm = program.tensor(norm_id);
  scaled_norm.name = "scaled_norm";
  scaled_norm.role = Role::activation;

  const auto first = std::find_if(program.ops.begin(), program.ops.end(), is_update);
  Op scale;
  scale.def = &ops::kLossScale;
  scale.phase = first->phase;
  scale.scope = first->scope;
  scale.inputs = {UpdateView(*first).hyper(), norm_id, state};
  const TensorId hyper = program.add_tensor({.name = "scaled_hyper", .shape = {4}, .full_precision = true});
  const TensorId true_norm =
      program.add_tensor({.name = "grad_norm", .shape = {1}, .role = Role::result, .full_precision = true});
  scale.outputs = {hyper, true_norm, state};
  for (Op& op : program.ops) {
    if (!is_update(op)) continue;
    op.inputs[UpdateOperands::kHyper] = hyper;
    if (UpdateView(op).norm() != program::kNone) op.inputs[UpdateOperands::kNorm] = true_norm;
    op.attrs.set("scaled", true);
  }
  program.ops.insert(std::find_if(program.ops.begin(), program.ops.end(), is_update), std::move(scale));
}

}  // namespace rooflm::passes
