// Experts that the host chooses, so that steps with equal loads can be timed.
#include "compile/passes/force_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "program/ops.h"

namespace rooflm::passes {

void force_routing(program::Program& forward) {
  program::TensorId chosen = program::kNone;
  for (program::Op& op : forward.ops) {
    if (!op.is(program::ops::kDispatch)) continue;
    if (chosen == program::kNone) {
      chosen = forward.add_tensor({.name = kRoutingInput,
                                   .shape = forward.shape(op.inputs[0]),
                                   .dtype = core::DType::i32,
                                   .role = program::Role::input});
    }
    op.inputs[0] = chosen;
  }
}

void limit_experts(program::Program& forward, double factor) {
  std::map<program::TensorId, std::int64_t> rows;  // most of all experts together, by offsets
  for (program::Op& op : forward.ops) {
    if (op.is(program::ops::kDispatch)) {
      const std::int64_t all = forward.shape(op.inputs[0]).numel();
      const std::int64_t experts = op.attrs.integer("experts");
      const double most = std::ceil(factor * static_cast<double>(all) / static_cast<double>(experts));
      const auto capacity = static_cast<std::int64_t>(std::min(most, static_cast<double>(all)));
      op.attrs.set("capacity", capacity);
      rows[op.outputs[2]] = std::min(all, capacity * experts);
    }
    if (op.is(program::ops::kGroupedMatmul)) op.attrs.set("rows", rows.at(op.inputs[2]));
  }
  if (rows.empty())
    throw core::UsageError(fmt::format("--expert-capacity {}: the model has no experts", factor));
}

}  // namespace rooflm::passes
