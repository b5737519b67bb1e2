// Weights that exist only in fp8. For plans only.
#include "compile/planned/fp8_parameters.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "compile/planned/collective_copies.h"
#include "program/fp8.h"

namespace rooflm::passes {
namespace {

bool is_cast(const Op& op) { return op.is(ops::kFp8Cast) && op.attrs.flag("current"); }

/// Tensors that are gathered weights or casts of masters and are read by fp8 casts only.
std::set<TensorId> weights_of(const Program& step) {
  std::set<TensorId> weights;
  for (const Op& op : step.ops) {
    if (!is_cast(op)) continue;
    const program::Tensor& weight = step.tensor(op.inputs[0]);
    if (weight.role == Role::gathered_weight) weights.insert(op.inputs[0]);
  }
  for (const Op& op : step.ops) {
    if (op.is(ops::kCast) && step.tensor(op.inputs[0]).role == Role::weight) weights.insert(op.outputs[0]);
  }
  for (const Op& op : step.ops) {
    if (is_cast(op)) continue;
    for (const TensorId id : op.inputs) weights.erase(id);
  }
  return weights;
}

}  // namespace

void fp8_parameters(Program& step) {
  const std::set<TensorId> weights = weights_of(step);
  std::map<TensorId, TensorId> instead;
  std::map<TensorId, TensorId> slots;  // by weight
  std::vector<Op> all = std::move(step.ops);
  step.ops.clear();
  for (Op& op : all) {
    for (TensorId& id : op.inputs) {
      if (const auto found = instead.find(id); found != instead.end()) id = found->second;
    }
    if (!is_cast(op) || !weights.contains(op.inputs[0])) {
      step.ops.push_back(std::move(op));
      continue;
    }
    const TensorId weight = op.inputs[0];
    step.tensor(weight).dtype = core::DType::f8;
    const auto [slot, is_first] = slots.try_emplace(weight, op.outputs[program::kSlot]);
    if (is_first) step.tensor(slot->second).role = Role::optimizer_state;
    instead[op.outputs[program::kSlot]] = slot->second;
    if (op.outputs[program::kAsStored] != program::kNone) instead[op.outputs[program::kAsStored]] = weight;
    if (op.outputs[program::kTransposed] == program::kNone) continue;
    Op turn = op_like(op, kRearrange, {weight}, {op.outputs[program::kTransposed]});
    turn.attrs = Attributes{};
    step.ops.push_back(std::move(turn));
  }
}

}  // namespace rooflm::passes
