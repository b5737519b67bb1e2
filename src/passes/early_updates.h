// Updating weights while the backward pass still runs.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Moves updates that need no norm of all gradients from the end of the step to where their gradient is final
/// and nothing reads the weight or its copy any more, and joins those that come close together with equal
/// attributes. All but the last carry the attribute `beside`: a device may run them beside the ops that
/// follow, up to the op with the attribute `join`, the last one; what they use is alive until then
/// (plan_memory). In the order of the program they are right as well. Updates that clip are left where they
/// are. Expects one tensor per update, copies attached.
void early_updates(program::Program& program);

}  // namespace rooflm::passes
