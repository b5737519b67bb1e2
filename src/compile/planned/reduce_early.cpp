// Tensor-parallel reductions that run beside the gradient of the weight.
#include "compile/planned/reduce_early.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

/// A tensor and its views are one place.
TensorId place_of(const Program& p, TensorId id) {
  const TensorId base = p.tensor(id).view_of;
  return base == program::kNone ? id : base;
}

bool have_common(const Program& p, const std::vector<TensorId>& some, const std::vector<TensorId>& others) {
  return std::ranges::any_of(some, [&](TensorId id) {
    return id != program::kNone && std::ranges::any_of(others, [&](TensorId other) {
             return other != program::kNone && place_of(p, id) == place_of(p, other);
           });
  });
}

/// Of a layer: what follows the head's is no product.
bool is_reduction(const Op& op) {
  return (op.is(ops::kReduceScatter) || op.is(ops::kAllReduce)) && !op.recomputed &&
         op.phase == program::Phase::backward && program::group_of(op) == program::Group::tensor &&
         core::Scope(op.scope).layer().has_value();
}

/// Whether `op` has to stay before `reduction`.
bool is_before(const Program& p, const Op& op, const Op& reduction) {
  return program::is_collective(op) || have_common(p, op.outputs, reduction.inputs) ||
         have_common(p, op.outputs, reduction.outputs) || have_common(p, op.inputs, reduction.outputs);
}

}  // namespace

void reduce_early(Program& step) {
  for (std::size_t i = 1; i < step.ops.size(); ++i) {
    if (!is_reduction(step.ops[i])) continue;
    std::size_t to = i;
    while (to > 0 && !is_before(step, step.ops[to - 1], step.ops[i])) --to;
    const auto begin = step.ops.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(to), begin + static_cast<std::ptrdiff_t>(i),
                begin + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace rooflm::passes
