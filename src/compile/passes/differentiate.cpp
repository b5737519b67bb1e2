// Derives the backward program from the gradient rules of the forward ops.
#include "compile/passes/differentiate.h"

#include <algorithm>
#include <utility>

namespace rooflm::passes {

void differentiate(program::Program& program, std::size_t first, program::GradientMap& gradients) {
  for (std::size_t i = program.ops.size(); i-- > first;) {
    const program::Op& op = program.ops[i];
    if (op.def->gradient == nullptr) continue;
    const bool reached = std::any_of(op.outputs.begin(), op.outputs.end(), [&](program::TensorId id) {
      return gradients.of(id) != program::kNone;
    });
    if (!reached && !op.def->begins_backward) continue;
    // Moves the op out: emitting may reallocate the list.
    program::GradientContext context(program, gradients, std::move(program.ops[i]));
    context.op().def->gradient(context);
    program.ops[i] = std::move(context).op();
  }
}

}  // namespace rooflm::passes
