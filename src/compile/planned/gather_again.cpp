// Rows of other tensor-parallel ranks are gathered again in the backward pass instead of kept. For plans
// only.
#include "compile/planned/gather_again.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

bool is_of_forward(const Op& op) { return op.phase == Phase::forward || op.recomputed; }
bool is_of_backward(const Op& op) { return op.phase == Phase::backward && !op.recomputed; }

/// Whether the op gathers rows for a layer. The head's rows are kept: its backward pass follows at once.
bool is_row_gather(const Program& p, const Op& op) {
  return op.is(ops::kAllGather) && program::group_of(op) == program::Group::tensor && is_of_forward(op) &&
         op.outputs.size() == 1 && p.shape(op.outputs[0]).rank() > 1 && core::Scope(op.scope).layer();
}

/// The first backward op of each block and micro-batch.
using FirstOps = std::map<std::pair<std::string, int>, std::size_t>;

FirstOps first_backward_ops(const Program& p) {
  FirstOps first;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    const Op& op = p.ops[i];
    if (is_of_backward(op)) first.try_emplace({op.scope, op.micro_batch}, i);
  }
  return first;
}

/// A gather, by the tensor that the forward pass reads.
struct Gather {
  Op op{};
  TensorId again = program::kNone;
};

}  // namespace

void gather_again(Program& step) {
  std::map<TensorId, Gather> gathers;
  for (const Op& op : step.ops) {
    if (is_row_gather(step, op)) gathers[op.outputs[0]] = {.op = op};
  }
  const FirstOps first = first_backward_ops(step);
  std::map<std::size_t, std::vector<Op>> before;
  for (Op& op : step.ops) {
    if (!is_of_backward(op) || !op.is(ops::kMatmul)) continue;
    for (TensorId& id : op.inputs) {
      const auto found = gathers.find(id);
      if (found == gathers.end()) continue;
      Gather& gather = found->second;
      if (gather.again == program::kNone) {
        gather.again = step.add_tensor(program::Tensor(step.tensor(id)));
        Op again = gather.op;
        again.phase = Phase::backward;
        again.recomputed = false;
        again.outputs = {gather.again};
        before[first.at({op.scope, op.micro_batch})].push_back(std::move(again));
      }
      id = gather.again;
    }
  }
  std::vector<Op> rewritten;
  rewritten.reserve(step.ops.size() + before.size());
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (const auto found = before.find(i); found != before.end())
      rewritten.insert(rewritten.end(), found->second.begin(), found->second.end());
    rewritten.push_back(std::move(step.ops[i]));
  }
  step.ops = std::move(rewritten);
}

}  // namespace rooflm::passes
