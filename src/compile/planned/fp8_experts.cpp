// Grouped matmuls of experts in fp8. For plans only.
#include "compile/planned/fp8_experts.h"

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "core/scope.h"
#include "program/fp8.h"

namespace rooflm::passes {
namespace {

bool is_of_experts(const Program& step, const Op& op) {
  const bool is_grouped = op.is(ops::kGroupedMatmul) || op.is(ops::kGroupedMatmulWeight);
  return is_grouped && core::Scope(op.scope).layer() && step.tensor(op.inputs[0]).dtype == core::DType::bf16;
}

/// The cast of `id` before `reader`, to a new tensor.
Op cast_before(Program& step, const Op& reader, TensorId id) {
  const core::Shape& shape = step.shape(id);
  const std::int64_t cols = shape[-1];
  const bool is_gradient = step.tensor(id).role == Role::activation_gradient;
  const bool is_weight = shape.rank() == 3;
  Tensor copy{.name = step.tensor(id).name + ".fp8",
              .shape = shape,
              .dtype = core::DType::f8,
              .role = is_weight     ? Role::workspace
                      : is_gradient ? Role::activation_gradient
                                    : Role::activation};
  Tensor scale{.name = step.tensor(id).name + ".fp8_scale",
               .shape = {program::kFp8Slot},
               .role = Role::workspace,
               .full_precision = true};
  const std::int64_t rows = shape.numel() / cols;
  const TensorId made = step.add_tensor(std::move(copy));
  const TensorId slot = step.add_tensor(std::move(scale));
  Op cast = op_like(reader, ops::kFp8Cast, {id}, {made, program::kNone, slot});
  cast.attrs = {{"rows", rows}, {"cols", cols}, {"e5m2", false}, {"current", true}};
  return cast;
}

}  // namespace

void fp8_experts(Program& step) {
  std::map<TensorId, TensorId> copies;
  std::vector<Op> rewritten;
  rewritten.reserve(step.ops.size());
  for (Op& op : step.ops) {
    for (const TensorId id : op.outputs) copies.erase(id);  // copies are stale once it is written
    for (std::size_t i = 0; is_of_experts(step, op) && i < 2; ++i) {
      const auto [entry, is_new] = copies.try_emplace(op.inputs[i], program::kNone);
      if (is_new) {
        rewritten.push_back(cast_before(step, op, op.inputs[i]));
        entry->second = rewritten.back().outputs[0];
      }
      if (i == 1) op.inputs[0] = copies.at(op.inputs[0]);
      if (i == 1) op.inputs[1] = entry->second;
    }
    rewritten.push_back(std::move(op));
  }
  step.ops = std::move(rewritten);
}

}  // namespace rooflm::passes
