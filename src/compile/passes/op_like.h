// An op that a pass emits in place of another.
#pragma once

#include <utility>
#include <vector>

#include "program/program.h"

namespace rooflm::passes {

/// An op `def` on these tensors, with the attributes, phase, scope and micro-batch of `like`.
inline program::Op op_like(const program::Op& like, const program::OpDef& def,
                           std::vector<program::TensorId> inputs, std::vector<program::TensorId> outputs) {
  program::Op op;
  op.def = &def;
  op.attrs = like.attrs;
  op.phase = like.phase;
  op.scope = like.scope;
  op.micro_batch = like.micro_batch;
  op.recomputed = like.recomputed;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  return op;
}

}  // namespace rooflm::passes
