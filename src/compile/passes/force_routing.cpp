// Experts that the host chooses, so that steps with equal loads can be timed.
#include "compile/passes/force_routing.h"

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

}  // namespace rooflm::passes
