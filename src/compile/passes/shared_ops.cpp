// Ops of a forward pass whose results are the same for every micro-batch.
#include "compile/passes/shared_ops.h"

#include <algorithm>

#include "compile/passes/words.h"

namespace rooflm::passes {

std::vector<bool> find_shared_ops(const Program& program) {
  const auto index = [](TensorId id) { return static_cast<std::size_t>(id); };
  std::vector<bool> is_of_weights(program.tensors.size(), false);
  for (std::size_t id = 0; id < is_of_weights.size(); ++id)
    is_of_weights[id] = program.tensors[id].role == Role::weight;
  std::vector<bool> is_shared(program.ops.size(), false);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.phase != Phase::forward && op.phase != Phase::setup) continue;
    is_shared[i] = !op.inputs.empty() && std::ranges::all_of(op.inputs, [&](TensorId id) {
      return id != program::kNone && is_of_weights[index(id)];
    });
    for (const TensorId id : op.outputs)
      if (is_shared[i] && id != program::kNone) is_of_weights[index(id)] = true;
  }
  // Of an op that has a gradient, only if none comes to it: its readers are shared and have none.
  std::vector<bool> is_read_by_others(program.tensors.size(), false);
  for (std::size_t i = program.ops.size(); i-- > 0;) {
    const Op& op = program.ops[i];
    const bool is_free = std::ranges::none_of(
        op.outputs, [&](TensorId id) { return id != program::kNone && is_read_by_others[index(id)]; });
    is_shared[i] = is_shared[i] && (op.def->gradient == nullptr || is_free);
    if (is_shared[i]) continue;
    for (const TensorId id : op.inputs)
      if (id != program::kNone) is_read_by_others[index(id)] = true;
  }
  return is_shared;
}

}  // namespace rooflm::passes
